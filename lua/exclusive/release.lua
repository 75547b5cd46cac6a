-- Ends an exclusive hold.
-- KEYS     as exclusive/leave.lua
-- ARGV     as exclusive/leave.lua
-- Returns  as exclusive/leave.lua
-- Needs    exclusive/leave_lone.lua, exclusive/leave.lua and what they need
return leave_exclusive(KEYS, ARGV, removed)
