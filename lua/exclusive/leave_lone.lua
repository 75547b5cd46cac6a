-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time.
-- Nothing else has the lock's name, no attempt waits in the store, and no client of Redisson listens.
-- KEYS     as exclusive/leave.lua or fair/leave.lua
-- ARGV     as exclusive/leave.lua
-- Returns  1 ended; otherwise `removed` is the answer to HDEL, and `woken` is how many subscribers were woken, if the hold
--          was alone
local removed = redis.pcall('HDEL', KEYS[1], ARGV[1])
local woken = removed == 1 and redis.call('EXISTS', KEYS[1], KEYS[4], KEYS[5]) == 0
  and redis.call(ARGV[2] or 'PUBLISH', KEYS[2], '0')
if woken == 0 then
  return 1
end
