-- Decides about several attempts, one after the other, each as the script of its mode does.
-- Needs    many/next.lua; exclusive/ask.lua, fair/ask.lua, read/ask.lua, write/ask.lua, permit/ask.lua and what they need
local ask = {reentrant = ask_exclusive, fair = ask_fair, read = ask_read, write = ask_write,
  permit = ask_permit}

-- The reason why the next attempt is refused, or nil and the function that grants it.
local function ask_next()
  local mode, keys, args = next_call()
  return ask[mode](keys, args)
end
