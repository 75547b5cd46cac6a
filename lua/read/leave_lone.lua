-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time.
-- Nothing else has the lock's name, and the line is empty.
-- KEYS     as read/leave.lua
-- ARGV     as read/leave.lua
-- Returns  as read/leave.lua; otherwise `lived` and `removed` are the answers to DEL and HDEL
local lived = redis.call('DEL', KEYS[3])
local removed = redis.pcall('HDEL', KEYS[1], ARGV[1])
if removed == 1 and lived == 1 and redis.call('EXISTS', KEYS[5]) == 0 and redis.call('HLEN', KEYS[1]) == 1
  and redis.call('HDEL', KEYS[1], 'mode') == 1 then
  redis.call(ARGV[2] or 'PUBLISH', KEYS[2], '0')
  return 1
end
