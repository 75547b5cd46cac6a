-- Gives permits back, and keeps the keys that store their limit.

-- How many ms the string and the set are kept after the last permit has expired, for waiting clients of Redisson.
local IDLE = 86400000

-- Gives permits back. Wakes as many waiters as Redisson does, and returns the number of subscribers that got the
-- message.
local function give_back(counter, channel, publish, permits)
  local free = redis.pcall('GET', counter)
  if type(free) == 'string' and free:find('^%-?%d+$') then
    free = free + permits
    redis.call('SET', counter, free, 'KEEPTTL')
    if free > 0 then
      return redis.call(publish, channel, free)
    end
  end
  return 0
end

-- Extends a string that expires beyond every permit, and lets the set expire with it. The set of one that does not expire is
-- kept: Redisson may have changed the string since.
local function outlive(counter, held, now)
  local left = redis.call('PTTL', counter)
  if left >= 0 then
    local last = redis.call('ZREVRANGE', held, 0, 0, 'WITHSCORES')[2] or now
    local life = math.max(left, last - now + IDLE)
    redis.call('PEXPIRE', counter, life)
    redis.call('PEXPIRE', held, life)
    redis.call('PEXPIRE', 'tower_lock_limit:' .. (counter:find('{', 1, true) and counter or '{' .. counter .. '}'), life)
  elseif left == -1 then
    redis.call('PERSIST', held)
  end
end
