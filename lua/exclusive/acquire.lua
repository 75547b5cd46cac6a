-- Grants an exclusive hold, in no particular order among waiters (PROTOCOL 1.1).
-- KEYS     1 lock hash, 2 tombstone of the attempt, 3 fencing counter (absent: no token is asked for)
-- ARGV     1 lease in ms, 2 hold id, 3 tokens to reserve, 4 retention of the counter in ms (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, 2 withdrawn before, 3 not an exclusive lock, 4 held without expiry
-- Needs    expire.lua, token.lua
local function grant()
  local token = KEYS[3] and next_token(KEYS[3], ARGV[3], ARGV[4])
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  expire(KEYS[1], ARGV[1])
  return token and {0, token} or 0
end

if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  return grant()
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 2
end
local held = redis.call('HMGET', KEYS[1], ARGV[2], 'mode')
if held[1] then
  return grant()
end
if held[2] then
  return 3
end
local left = redis.call('PTTL', KEYS[1])
if left == -1 then
  return 4
end
return {1, left}
