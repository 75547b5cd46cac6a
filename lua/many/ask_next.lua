-- Asks the questions of several attempts, one after the other, each as the script of its mode would.
-- KEYS     of each attempt, one after the other: the keys that the script of its mode takes
-- ARGV     of each attempt, one after the other: its mode, how many keys it has, how many arguments; these arguments
-- Needs    exclusive/ask.lua, fair/ask.lua, read/ask.lua, write/ask.lua
local ask = {reentrant = ask_exclusive, fair = ask_fair, read = ask_read, write = ask_write}
local keys_read, args_read = 0, 0

local function cut(list, from, count)
  local piece = {}
  for i = 1, count do
    piece[i] = list[from + i]
  end
  return piece
end

local function is_next()
  return args_read < #ARGV
end

-- Why the next attempt cannot be granted, or else what grants it.
local function ask_next()
  local head = cut(ARGV, args_read, 3)
  local keys = cut(KEYS, keys_read, head[2])
  local args = cut(ARGV, args_read + 3, head[3])
  keys_read, args_read = keys_read + #keys, args_read + 3 + #args
  return ask[head[1]](keys, args)
end
