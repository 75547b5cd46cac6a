-- Ends every permit of a key. Redisson has no such operation; its waiters are woken as by the same number
-- of releases.
-- Needs    now.lua, permit/stock.lua, permit/give.lua
local function end_permits(counter, held, channel, publish)
  if take_stock(counter, held, now_ms()) == false then
    return 3
  end
  local taken = redis.call('ZCARD', held)
  if taken == 0 then
    return 0
  end
  redis.call('DEL', held)
  give_back(counter, channel, publish, taken)
  return 1
end
