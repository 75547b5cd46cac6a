-- This comes before most functions: in the usual case the script returns before Redis creates them, which saves time. No
-- permit is held, no key says that the attempt might have to wait, and attempts name the limit: there is no number under the
-- name, or one that attempts have left there.
-- KEYS     as permit/acquire.lua
-- ARGV     as permit/acquire.lua
-- Needs    now.lua, permit/give.lua
if redis.call('EXISTS', KEYS[2], KEYS[4], KEYS[6], KEYS[8]) == 0 then
  local free = redis.call('GET', KEYS[1])
  local named = free and free:find('^%-?%d+$') and redis.call('GET', KEYS[5])
  if not free or named and named ~= 'set' then
    redis.call('SET', KEYS[1], ARGV[4] - 1, 'PX', ARGV[1] + IDLE)
    redis.call('SET', KEYS[5], ARGV[4], 'PX', ARGV[1] + IDLE)
    redis.call('ZADD', KEYS[2], now_ms() + ARGV[1], ARGV[2])
    redis.call('PEXPIRE', KEYS[2], ARGV[1] + IDLE)
    return 0
  end
end
