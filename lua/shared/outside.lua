-- The turn of those that wait outside the line: clients of Redisson, and attempts without a place. They ask whenever they
-- are woken, and the line does not hold them back. A release that wakes some of them gives one of them the time to take
-- the lock before the line does: a key with an expiry. The turn is over when the lock is found taken.

-- How many ms the time is: a message, and a question of a client that must wake a thread for it.
local OUTSIDE_TURN = 5

-- After a release that woke so many outside the line.
local function give_outside_turn(outside, woken)
  if woken > 0 then
    redis.call('SET', outside, 1, 'PX', OUTSIDE_TURN)
  end
end

-- For how many ms those outside go before the first in line; nil if they do not. `taken`: the lock is held.
local function outside_turn(outside, taken)
  if taken then
    redis.call('DEL', outside)
    return nil
  end
  local left = redis.call('PTTL', outside)
  return left > 0 and left or nil
end

-- Whether a client of Redisson is among the holders: its ids are random UUIDs, of version 4; ours are of version 8.
local function is_redissons(name)
  for _, field in ipairs(redis.call('HRANDFIELD', name, 3)) do
    if field:sub(15, 15) == '4' then
      return true
    end
  end
  return false
end
