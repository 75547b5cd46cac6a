-- Gives passes to the readers that wait now, and wakes all of them by one message: they go before the next writer.
-- Needs    now.lua
local function pass(readers, passes, enter, publish)
  if redis.call('EXISTS', readers) == 1 then
    redis.call('ZREMRANGEBYSCORE', readers, '-inf', now_ms())
    if redis.call('EXISTS', readers) == 1 then
      redis.call('RENAME', readers, passes)
      redis.call(publish, enter, '0')
    end
  end
end
