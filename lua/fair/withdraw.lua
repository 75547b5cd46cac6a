-- Takes a fair attempt back: its hold, its place in the queue (PROTOCOL 1.2, acquireFailed). If the lock is free, the
-- first in line is told.
-- KEYS     1 lock hash, 2 queue, 3 timeouts, 4 alive, 5 tombstone
-- ARGV     1 hold id, 2 publish command, 3 channel of the lock, 4 patience in ms, 5 life of the tombstone in ms (0: none)
-- Returns  1 ended, 0 nothing was held
-- Needs    on_hash.lua, now.lua, fair/queue.lua, fair/wake.lua
local id = ARGV[1]
local ended = on_hash('HDEL', KEYS[1], id)
if ended == 1 then
  redis.call('DEL', KEYS[1])
end
local ids = redis.call('LRANGE', KEYS[2], 0, -1)
for i = 1, #ids do
  if ids[i] == id then
    advance(KEYS[3], ids, i + 1, tonumber(ARGV[4]))
    break
  end
end
forget(KEYS[2], KEYS[3], KEYS[4], id)
if redis.call('EXISTS', KEYS[1]) == 0 then
  wake(KEYS[2], KEYS[3], KEYS[4], ARGV[3], ARGV[2])
end
if ARGV[5] ~= '0' then
  redis.call('SET', KEYS[5], 1, 'PX', ARGV[5])
end
return ended
