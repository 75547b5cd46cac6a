-- Ends several holds, each as the release of its mode does.
-- KEYS     as many/next.lua
-- ARGV     as many/next.lua
-- Returns  for each hold, in order, the answer of the release of its mode
-- Needs    many/next.lua; exclusive/leave.lua, fair/leave.lua, read/leave.lua, write/leave.lua,
--          permit/leave.lua and what they need
local leave = {reentrant = leave_exclusive, fair = leave_fair, read = leave_read, write = leave_write,
  permit = leave_permit}
local answers = {}
while is_next() do
  local mode, keys, args = next_call()
  answers[#answers + 1] = leave[mode](keys, args)
end
return answers
