-- Ends an exclusive hold (PROTOCOL 1.2) and tells the first in line. Where Redisson says that a hold which had lapsed was
-- released, this says that it was gone, but still tells the first in line.
-- KEYS     1 lock hash, 2 queue, 3 timeouts, 4 alive
-- ARGV     1 hold id, 2 publish command, 3 channel of the lock
-- Returns  1 ended, 0 gone before
-- Needs    on_hash.lua, now.lua, fair/queue.lua, fair/wake.lua
local held = on_hash('HEXISTS', KEYS[1], ARGV[1])
if held == 1 then
  redis.call('DEL', KEYS[1])
elseif redis.call('EXISTS', KEYS[1]) == 1 or redis.call('EXISTS', KEYS[2]) == 0 then
  return 0
end
wake(KEYS[2], KEYS[3], KEYS[4], ARGV[3], ARGV[2])
return held
