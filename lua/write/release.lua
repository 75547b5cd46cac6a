-- Ends a write hold.
-- KEYS     as write/leave.lua
-- ARGV     as write/leave.lua
-- Returns  as write/leave.lua
-- Needs    write/leave.lua and what it needs
return leave_write(KEYS, ARGV)
