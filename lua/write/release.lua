-- Ends a write hold.
-- KEYS     as write/leave.lua
-- ARGV     as write/leave.lua
-- Returns  as write/leave.lua
-- Needs    write/leave_lone.lua, write/leave.lua and what they need
if woken then
  redis.call(ARGV[2] or 'PUBLISH', KEYS[2], '0')
  give_outside_turn(KEYS[7], woken)
  return 1 + woken
end
return leave_write(KEYS, ARGV, tonumber(removed))
