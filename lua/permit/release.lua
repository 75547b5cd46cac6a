-- Gives a permit back.
-- KEYS     as permit/leave.lua
-- ARGV     as permit/leave.lua
-- Returns  as permit/leave.lua
-- Needs    permit/leave.lua and what it needs
return leave_permit(KEYS, ARGV)
