-- Ends a read hold.
-- KEYS     as read/leave.lua
-- ARGV     as read/leave.lua
-- Returns  as read/leave.lua
-- Needs    read/leave.lua and what it needs
return leave_read(KEYS, ARGV)
