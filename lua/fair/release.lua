-- Ends an exclusive hold and wakes the first in the queue.
-- KEYS     as fair/leave.lua
-- ARGV     as fair/leave.lua
-- Returns  as fair/leave.lua
-- Needs    exclusive/leave_lone.lua, fair/leave.lua and what it needs
if woken then
  return 1
end
return leave_fair(KEYS, ARGV, tonumber(removed))
