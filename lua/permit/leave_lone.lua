-- This comes before most functions: in the usual case the script returns before Redis creates them, which saves time. The
-- line is empty, and no client of Redisson listens.
-- KEYS     as permit/leave.lua
-- ARGV     as permit/leave.lua
-- Returns  as permit/leave.lua; otherwise `woken` is how many subscribers were woken, if the line is empty, and `lived` is
--          whether the permit had not expired
-- Needs    now.lua
local woken, lived
if redis.call('EXISTS', KEYS[5], KEYS[6]) == 0 then
  local free, ends = redis.pcall('GET', KEYS[1]), redis.pcall('ZSCORE', KEYS[2], ARGV[1])
  if type(free) == 'string' and free:find('^%-?%d+$') and type(ends) == 'string' then
    free = free + 1
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('SET', KEYS[1], free, 'KEEPTTL')
    woken = free > 0 and redis.call(ARGV[2] or 'PUBLISH', KEYS[3], free) or 0
    lived = tonumber(ends) > now_ms()
    if woken == 0 then
      return lived and 1 or 0
    end
  end
end
