-- Grants a write hold (PROTOCOL 1.3), unless readers have a pass to go first.
-- KEYS     1 lock hash, 2 tombstone, 3 waiting writers, 4 passes, 5 fencing counter (absent: no token is asked for)
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: it will not ask again), 4 tokens to reserve,
--          5 retention of the counter in ms (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, 2 withdrawn before, 3 not a read-write lock, 4 held without expiry
-- Needs    now.lua, expire.lua, waiters.lua, token.lua
local name, id, lease = KEYS[1], ARGV[2], tonumber(ARGV[1])
local field = id .. ':write'

local function grant(left)
  local token = KEYS[5] and next_token(KEYS[5], ARGV[4], ARGV[5])
  redis.call('HSET', name, 'mode', 'write', field, 1)
  expire(name, math.max(lease, left))
  return token and {0, token} or 0
end

if redis.call('EXISTS', name, KEYS[2], KEYS[3], KEYS[4]) == 0 then
  return grant(0)
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 2
end
local held = redis.call('HMGET', name, 'mode', field)
if held[2] then
  return grant(redis.call('PTTL', name))
end
if not held[1] and redis.call('EXISTS', name) == 1 then
  return 3
end

local now, refused = now_ms(), nil
if held[1] then
  refused = redis.call('PTTL', name)
  if refused == -1 then
    return 4
  end
else
  refused = waiting(KEYS[4], now)
end
if refused then
  if ARGV[3] ~= '0' then
    join(KEYS[3], id, ARGV[3], now)
  end
  return {1, refused}
end
redis.call('ZREM', KEYS[3], id)
return grant(0)
