-- The usual case comes first: Redis creates the functions below whenever the script runs. Nothing else has the lock's
-- name, no reader waits, and the line is empty.
-- KEYS     as write/leave.lua
-- ARGV     as write/leave.lua
-- Returns  as write/leave.lua
-- Needs    on_hash.lua, outside.lua, wake_all.lua
local removed = on_hash('HDEL', KEYS[1], ARGV[1] .. ':write')
if removed == 1 and redis.call('EXISTS', KEYS[3], KEYS[6]) == 0 and redis.call('HLEN', KEYS[1]) == 1
  and redis.call('HDEL', KEYS[1], 'mode') == 1 then
  local woken = wake_all(ARGV[2], KEYS[2])
  give_outside_turn(KEYS[7], woken)
  return 1 + woken
end
