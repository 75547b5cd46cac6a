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
  -- What is unusual about a lock has the times `asked`, `void` and `ends`. The clock of those who wait goes on, as if someone had
  -- asked every second: the memory store knows no silence.
  if key:find('^tower_lock_busy:') then
    local asked, late, void, turn, ends, fair = redis.call('GET', key):match('^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
    local words = {asked - math.min(passed, 1000), late, void - passed, turn, ends - passed, fair}
    redis.call('SET', key, table.concat(words, ' '), 'KEEPTTL')
  end
  local left = redis.call('PTTL', key)
  if left >= 0 then
    redis.call('PEXPIRE', key, left - passed)
  end
end
return now
