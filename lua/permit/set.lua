-- Sets the limit of a key's permits, in place of the limits that attempts name; or leaves it to attempts again. Held
-- permits remain held: if there are more than the limit allows, none is granted until enough have ended.
-- KEYS     1 free permits, 2 permits that are held, 3 channel, 4 the limit that attempts named, or `set`, 5 waiting,
--          6 line
-- ARGV     1 limit (0: attempts name it), 2 publish command
-- Returns  1 done, 3 not a lock
-- Needs    now.lua, line.lua, permit/stock.lua, permit/give.lua
local now = now_ms()
local free = take_stock(KEYS[1], KEYS[2], now)
if free == false then
  return 3
end
if ARGV[1] == '0' then
  if redis.call('GET', KEYS[4]) == 'set' then
    redis.call('SET', KEYS[4], (free or 0) + redis.call('ZCARD', KEYS[2]), 'PX', IDLE)
    if free then
      redis.call('PEXPIRE', KEYS[1], IDLE)
      outlive(KEYS[1], KEYS[2], now)
    end
  end
  return 1
end
redis.call('SET', KEYS[4], 'set')
local taken = redis.call('ZCARD', KEYS[2])
local left = ARGV[1] - taken
if taken == 0 and redis.call('PTTL', KEYS[1]) >= 0 then
  free = 0
end
redis.call('SET', KEYS[1], left)
redis.call('PERSIST', KEYS[2])
if left > 0 and left > (free or 0) then
  redis.call(ARGV[2], KEYS[3], left)
  call_first(KEYS[6], KEYS[5], ARGV[2])
end
return 1
