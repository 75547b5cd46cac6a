-- Wakes all readers that wait, by one message on their channel. `writers` is the key of the waiting writers.
-- Needs    line.lua
local function call_readers(writers, publish)
  redis.call(publish, 'tower_lock_enter:' .. tag_of(writers), '0')
end

-- Gives passes to the readers that wait now, and wakes all of them: they go before the next writer.
-- Needs    now.lua
local function pass(readers, passes, writers, publish)
  if redis.call('EXISTS', readers) == 1 then
    redis.call('ZREMRANGEBYSCORE', readers, '-inf', now_ms())
    if redis.call('EXISTS', readers) == 1 then
      redis.call('RENAME', readers, passes)
      call_readers(writers, publish)
    end
  end
end
