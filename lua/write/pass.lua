-- Gives passes to the readers that wait at this moment: they go before the next writer.
-- Needs    now.lua
local function pass(readers, passes)
  if redis.call('EXISTS', readers) == 1 then
    redis.call('ZREMRANGEBYSCORE', readers, '-inf', now_ms())
    if redis.call('EXISTS', readers) == 1 then
      redis.call('RENAME', readers, passes)
    end
  end
end
