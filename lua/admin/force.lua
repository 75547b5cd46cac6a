-- Ends every hold on a lock as Redisson does (PROTOCOL 1.1 to 1.3), and wakes the waiters. If a writer is ended, the
-- waiting readers get passes, as at its release. If there are too many readers for one script, their timeout keys are
-- left to expire, as Redisson leaves all of them.
-- KEYS     1 lock hash, 2 channel, 3 queue, 4 timeouts, 5 alive, 6 read-write channel, 7 waiting readers, 8 passes,
--          9 waiting writers, 10 line, 11 permits that are held, 12 channel of permits
-- ARGV     1 publish command
-- Returns  1 ended, 0 nothing was held, 3 not a lock
-- Needs    now.lua, sample.lua, wake_all.lua, line.lua, fair/queue.lua, fair/wake.lua, write/pass.lua, admin/holders.lua,
--          permit/force.lua and what it needs
if type(redis.pcall('GET', KEYS[1])) == 'string' then
  local ended = end_permits(KEYS[1], KEYS[11], KEYS[12], ARGV[1])
  call_first(KEYS[10], KEYS[9], ARGV[1])
  return ended
end
local found, kind = holders(KEYS[1])
if not kind then
  return 3
end
if redis.call('DEL', KEYS[1]) == 0 then
  return 0
end
if kind == 'exclusive' then
  redis.call(ARGV[1], KEYS[2], '0')
  if redis.call('EXISTS', KEYS[3]) == 1 then
    wake(KEYS[3], KEYS[4], KEYS[5], KEYS[2], ARGV[1], KEYS[9], KEYS[10])
  end
  call_first(KEYS[10], KEYS[9], ARGV[1])
  return 1
end
local timeouts = {}
for _, hold in ipairs(found) do
  add_timeouts(timeouts, tag_of(KEYS[9]), hold[1], hold[2])
end
if #timeouts > 0 then
  redis.call('DEL', unpack(timeouts))
end
if kind == 'write' then
  pass(KEYS[7], KEYS[8], KEYS[9], ARGV[1])
  wake_all(ARGV[1], KEYS[6])
else
  redis.call(ARGV[1], KEYS[6], '0')
end
call_first(KEYS[10], KEYS[9], ARGV[1])
return 1
