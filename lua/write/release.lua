-- Ends a write hold.
-- KEYS     as write/leave.lua
-- ARGV     as write/leave.lua
-- Returns  as write/leave.lua
-- Needs    write/leave_lone.lua, write/leave.lua and what they need
return leave_write(KEYS, ARGV, removed)
