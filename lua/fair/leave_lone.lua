-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time.
-- Nothing else has the lock's name, and neither the queue nor the line has a waiter.
-- KEYS     as fair/leave.lua
-- ARGV     as fair/leave.lua
-- Returns  as fair/leave.lua; otherwise `removed` is the answer to HDEL
local removed = redis.pcall('HDEL', KEYS[1], ARGV[1])
if removed == 1 and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[6]) == 0 then
  redis.call(ARGV[3] or 'PUBLISH', ARGV[2], '0')
  return 1
end
