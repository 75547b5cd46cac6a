-- Ends an exclusive hold.
-- KEYS     as exclusive/leave.lua
-- ARGV     as exclusive/leave.lua
-- Returns  as exclusive/leave.lua
-- Needs    exclusive/leave_lone.lua, exclusive/leave.lua and what they need
if woken then
  give_outside_turn(KEYS[5], woken)
  return 1 + woken
end
return leave_exclusive(KEYS, ARGV, tonumber(removed))
