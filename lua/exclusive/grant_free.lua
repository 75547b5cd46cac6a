-- The usual case comes first: Redis creates the functions below whenever the script runs. No key of the lock says that the
-- attempt might have to wait, and it wants no token.
-- KEYS     as exclusive/acquire.lua
-- ARGV     as exclusive/acquire.lua
-- Needs    expire.lua
if not KEYS[6] and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[5]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  expire(KEYS[1], ARGV[1])
  return 0
end
