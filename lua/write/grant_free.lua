-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. No
-- key of the lock says that the attempt might have to wait, and it wants no token.
-- KEYS     as write/acquire.lua
-- ARGV     as write/acquire.lua
-- If the expiry cannot be set, the steps below find the hold without one, and expire.lua removes it.
if not KEYS[7] and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]) == 0 then
  redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[2] .. ':write', '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end
