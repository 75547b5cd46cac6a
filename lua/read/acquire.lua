-- Grants a read hold (PROTOCOL 1.3), unless a writer waits and the attempt has no pass.
-- KEYS     1 lock hash, 2 tombstone, 3 waiting writers, 4 waiting readers, 5 passes, 6 own reader timeout
-- ARGV     1 lease in ms, 2 hold id, 3 ms that it counts as waiting (0: it will not ask again)
-- Returns  0 granted, {1, ms} refused, 2 withdrawn before, 3 not a read-write lock, 4 held without expiry
-- Needs    now.lua, expire.lua, waiters.lua
local name, id, lease = KEYS[1], ARGV[2], tonumber(ARGV[1])

if redis.call('EXISTS', name, KEYS[2], KEYS[3], KEYS[4], KEYS[5]) == 0 then
  redis.call('SET', KEYS[6], 1, 'PX', lease)
  redis.call('HSET', name, 'mode', 'read', id, 1)
  expire(name, lease)
  return 0
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 2
end
local held = redis.call('HMGET', name, 'mode', id, id .. ':write')
local mode, writes = held[1], held[3]
local reads = held[2] and redis.call('EXISTS', KEYS[6]) == 1
if not mode and redis.call('EXISTS', name) == 1 then
  return 3
end

local now, refused = now_ms(), nil
local pass = tonumber(redis.call('ZSCORE', KEYS[5], id) or 0) > now
if mode == 'write' and not writes then
  refused = redis.call('PTTL', name)
  if refused == -1 then
    return 4
  end
elseif not (writes or reads or pass) then
  refused = waiting(KEYS[3], now)
end

if refused then
  if ARGV[3] ~= '0' then
    join(KEYS[4], id, ARGV[3], now)
    if pass then
      join(KEYS[5], id, ARGV[3], now)
    end
  end
  return {1, refused}
end
redis.call('ZREM', KEYS[4], id)
redis.call('ZREM', KEYS[5], id)
redis.call('SET', KEYS[6], 1, 'PX', lease)
redis.call('HSET', name, 'mode', mode or 'read', id, 1)
expire(name, math.max(lease, redis.call('PTTL', name)))
return 0
