-- Purpose: lets time pass for everything in the database, so that nothing but ARGV[1] has passed since it last did.
-- KEYS:    none (it moves them all; for tests only)
-- ARGV:    1 how many ms are to pass, 2 the time when it last did (absent: now)
-- Returns: the server's time in ms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local passed = ARGV[1] - (now - (ARGV[2] or now))
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TYPE', key).ok == 'zset' then
    -- All of them have times as scores.
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      redis.call('ZINCRBY', key, -passed, member)
    end
  end
  -- The clock of those who wait goes on, as if someone had asked all the time: the memory store knows no silence.
  if redis.call('TYPE', key).ok == 'hash' and redis.call('HEXISTS', key, 'void') == 1 then
    redis.call('HINCRBY', key, 'void', string.format('%d', 0 - passed))
  end
  local left = redis.call('PTTL', key)
  if left >= 0 then
    redis.call('PEXPIRE', key, left - passed)
  end
end
return now
