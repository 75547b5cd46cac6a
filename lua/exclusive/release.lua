-- Ends an exclusive hold.
-- KEYS     as exclusive/leave.lua
-- ARGV     as exclusive/leave.lua
-- Returns  as exclusive/leave.lua
-- Needs    exclusive/leave.lua and what it needs
return leave_exclusive(KEYS, ARGV)
