-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. No
-- key of the lock says that the attempt might have to wait, or shares the lock.
-- KEYS     as read/acquire.lua
-- ARGV     as read/acquire.lua
-- If the expiry cannot be set, the steps below find the hold without one, and expire.lua removes it.
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) == 0 then
  redis.call('SET', KEYS[6], '1', 'PX', ARGV[1])
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end
