-- The turn of those that wait outside the line: clients of Redisson, and attempts without a place. They ask whenever they
-- are woken, and the line does not delay them. A release that wakes some of them gives one of them time to take the lock
-- before the line: a key with an expiry. The turn ends when a question finds the lock taken.

-- The length of the turn in ms: the time of a message, and of a question from a client that must wake a thread first.
local OUTSIDE_TURN = 5

-- Begins the turn after a release that woke `woken` subscribers outside the line.
local function give_outside_turn(outside, woken)
  if woken > 0 then
    redis.call('SET', outside, 1, 'PX', OUTSIDE_TURN)
  end
end

-- For how many ms waiters outside the line go before the first in line; nil if they do not. `taken`: the lock is held.
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
