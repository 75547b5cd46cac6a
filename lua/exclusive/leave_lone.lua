-- The usual case comes first: Redis creates the functions below whenever the script runs. Nothing else has the lock's
-- name, and the line is empty.
-- KEYS     as exclusive/leave.lua
-- ARGV     as exclusive/leave.lua
-- Returns  as exclusive/leave.lua
-- Needs    on_hash.lua, outside.lua
local removed = on_hash('HDEL', KEYS[1], ARGV[1])
if removed == 1 and redis.call('EXISTS', KEYS[1], KEYS[4]) == 0 then
  local woken = redis.call(ARGV[2], KEYS[2], '0')
  give_outside_turn(KEYS[5], woken)
  return 1 + woken
end
