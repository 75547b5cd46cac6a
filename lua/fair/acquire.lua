-- Grants an exclusive hold to the first in line (PROTOCOL 1.2), or lines the attempt up.
-- KEYS     1 lock hash, 2 queue, 3 timeouts, 4 alive, 5 tombstone, 6 fencing counter (absent: no token is asked for)
-- ARGV     1 lease in ms, 2 hold id, 3 patience in ms (0: it will not ask again), 4 ms that it counts as alive,
--          5 channel of the lock, 6 publish command, 7 tokens to reserve, 8 retention of the counter in ms (0: for ever)
-- Returns  0 or {0, token} granted, {1, ms} refused, 2 withdrawn before, 3 not an exclusive lock, 4 held without expiry
-- Needs    now.lua, expire.lua, token.lua, fair/queue.lua, fair/line_up.lua
local name, queue, timeouts, alive, id = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[2]

local function grant()
  local token = KEYS[6] and next_token(KEYS[6], ARGV[7], ARGV[8])
  redis.call('HSET', name, id, 1)
  expire(name, ARGV[1])
  return token and {0, token} or 0
end

if redis.call('EXISTS', name, queue, KEYS[5]) == 0 then
  return grant()
end
if redis.call('EXISTS', KEYS[5]) == 1 then
  return 2
end
local held = redis.call('HMGET', name, id, 'mode')
if held[1] then
  return grant()
end
if held[2] then
  return 3
end

local now, wait, left = now_ms(), tonumber(ARGV[3]), redis.call('PTTL', name)
if left == -1 then
  return 4
end
local head, dropped = first_in_line(queue, timeouts, alive, now)
if left == -2 and (not head or head == id) then
  local granted = grant()
  forget(queue, timeouts, alive, id)
  advance(timeouts, redis.call('ZRANGE', timeouts, 0, -1), 1, wait)
  return granted
end
if left == -2 then
  if dropped then
    redis.call(ARGV[6], ARGV[5] .. ':' .. head, '0')
  end
  -- The lock waits for its next holder: for as long as that one counts as alive, or a second for one of Redisson's.
  left = (redis.call('ZSCORE', alive, head) or now + 1000) - now
end
if wait > 0 then
  line_up(queue, timeouts, alive, id, now, wait, left, ARGV[4])
end
return {1, left}
