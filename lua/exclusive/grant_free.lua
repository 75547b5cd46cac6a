-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. No
-- key of the lock says that the attempt might have to wait, and it wants no token.
-- KEYS     as exclusive/acquire.lua or fair/acquire.lua
-- ARGV     as exclusive/acquire.lua
-- If the expiry cannot be set, the steps below find the hold without one, and expire.lua removes it.
if not KEYS[6] and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[5]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[2], '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end
