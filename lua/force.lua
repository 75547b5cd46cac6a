-- Ends every hold on a lock as Redisson does, and wakes the waiters. If a writer is ended, the waiting readers get passes, as at
-- its release. If there are too many readers for one script, their timeout keys are left to expire, as Redisson leaves all of
-- them. Redisson has no such operation for permits; its waiters are woken as by the same number of releases. Needs time.lua, hash.lua,
-- line.lua, queue.lua, read_write.lua, stock.lua, the holders of inspect.lua.

--# force
local lock, publish = state_of(KEYS[2]), ARGV[1]
if type(redis.pcall('GET', KEYS[1])) == 'string' then
  local taken = take_stock(KEYS[1], KEYS[3], lock.now) ~= false and redis.call('ZCARD', KEYS[3])
  if not taken or taken == 0 then
    return taken or 3
  end
  redis.call('DEL', KEYS[3])
  give_back(KEYS[1], lock, publish, taken)
  call_first(lock, publish)
  return 1
end
local found, kind = holders(KEYS[1])
if not kind then
  return 3
elseif redis.call('DEL', KEYS[1]) == 0 then
  return 0
end
local channel, both = 'redisson_lock__channel:' .. lock.tag, 'redisson_rwlock:' .. lock.tag
if kind == 'exclusive' then
  redis.call(publish, channel, '0')
  if redis.call('EXISTS', 'redisson_lock_queue:' .. lock.tag) == 1 then
    wake(lock, channel, publish)
  end
else
  local timeouts = {}
  for _, hold in ipairs(found) do
    add_timeouts(timeouts, lock.tag, hold[1], hold[2])
  end
  if #timeouts > 0 then
    redis.call('DEL', unpack(timeouts))
  end
  if kind == 'write' then
    pass(lock, publish)
    wake_all(publish, both)
  else
    redis.call(publish, both, '0')
  end
end
call_first(lock, publish)
return 1
