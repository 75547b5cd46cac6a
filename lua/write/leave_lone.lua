-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time.
-- Nothing else has the lock's name, no reader waits, the line is empty, and no client of Redisson listens.
-- KEYS     as write/leave.lua
-- ARGV     as write/leave.lua
-- Returns  as write/leave.lua; otherwise `removed` is the answer to HDEL, and `woken` is how many subscribers got the first
--          message of wake_all.lua, if the hold was alone
local removed = redis.pcall('HDEL', KEYS[1], ARGV[1] .. ':write')
local woken = removed == 1 and redis.call('EXISTS', KEYS[3], KEYS[6], KEYS[7]) == 0 and redis.call('HLEN', KEYS[1]) == 1
  and redis.call('HDEL', KEYS[1], 'mode') == 1 and redis.call(ARGV[2] or 'PUBLISH', KEYS[2], '1')
if woken == 0 then
  return 1
end
