-- Ends a read hold.
-- KEYS     as read/leave.lua
-- ARGV     as read/leave.lua
-- Returns  as read/leave.lua
-- Needs    read/leave_lone.lua, read/leave.lua and what they need
return leave_read(KEYS, ARGV, tonumber(removed), lived)
