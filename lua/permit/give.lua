-- Gives permits back, and keeps what remembers their limit.

-- How many ms the string and the set live on after the last permit has lapsed: clients of Redisson that wait find them.
local IDLE = 86400000

-- Gives permits back. Wakes as many who wait as Redisson does, and returns how many have heard of it.
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

-- Lets a string that expires outlive every permit, and the set expire with it.
local function outlive(counter, held, now)
  local left = redis.call('PTTL', counter)
  if left >= 0 then
    local last = redis.call('ZREVRANGE', held, 0, 0, 'WITHSCORES')[2] or now
    local life = math.max(left, last - now + IDLE)
    redis.call('PEXPIRE', counter, life)
    redis.call('PEXPIRE', held, life)
  end
end
