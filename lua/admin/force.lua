-- Ends every hold on a lock as Redisson does (PROTOCOL 1.1 to 1.3), and wakes those who wait. The readers that wait when
-- a writer is ended get passes, as at its release.
-- KEYS     1 lock hash, 2 channel, 3 queue, 4 timeouts, 5 alive, 6 read-write channel, 7 waiting readers, 8 passes
-- ARGV     1 publish command, 2 prefix of all reader timeouts
-- Returns  1 ended, 0 nothing was held, 3 not a lock
-- Needs    now.lua, fair/queue.lua, fair/wake.lua, write/pass.lua, admin/holders.lua
local fields, kind = holders(KEYS[1])
if not kind then
  return 3
end
if redis.call('DEL', KEYS[1]) == 0 then
  return 0
end
if kind == 'exclusive' then
  redis.call(ARGV[1], KEYS[2], '0')
  if redis.call('EXISTS', KEYS[3]) == 1 then
    wake(KEYS[3], KEYS[4], KEYS[5], KEYS[2], ARGV[1])
  end
  return 1
end
for _, entry in ipairs(fields) do
  for i = 1, entry[2] do
    redis.call('DEL', reader_timeout(ARGV[2], entry[1], i))
  end
end
if kind == 'write' then
  pass(KEYS[7], KEYS[8])
end
redis.call(ARGV[1], KEYS[6], kind == 'write' and '1' or '0')
return 1
