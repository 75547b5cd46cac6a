-- Gives a permit back.
-- KEYS     as permit/leave.lua
-- ARGV     as permit/leave.lua
-- Returns  as permit/leave.lua
-- Needs    permit/leave_lone.lua, permit/leave.lua and what it needs
if woken then
  give_outside_turn(KEYS[6], woken)
  return lived and 1 + woken or 0
end
return leave_permit(KEYS, ARGV)
