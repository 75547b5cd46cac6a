-- The turn of those that wait outside the line: clients of Redisson, and attempts without a place. They ask whenever they
-- are woken, and the line does not delay them. A release that wakes some of them gives one of them time to take the lock
-- before the line. The turn ends when a question finds the lock taken. If one of our attempts without a place takes it, the
-- next turn belongs to the line, in which other such attempts are refused: the line is not overtaken again and again. The
-- key that says so is a string with an expiry: `1` while those outside have their turn, `0` while a hold lasts that was
-- granted in front of the line (at most a day, if that hold was not released), `2` while the line has its turn.
-- Needs time.lua, line.lua

-- The length of the turn in ms: the time of a message, and of a question from a client that must wake a thread first.
local OUTSIDE_TURN = 5
-- Longer than nearly any hold lasts, however often it is renewed.
local IN_FRONT = 86400000

local function set_turn(lock, turn, ms)
  redis.call('SET', lock.outside, turn, 'PX', ms)
  redis.call('HSET', lock.busy, 'turn', 1)
  keep(lock.busy, ms)
end

-- Begins the turn after a release that woke `woken` subscribers outside the line, or the turn of the line.
local function give_turn(lock, woken)
  if redis.call('GET', lock.outside) == '0' then
    set_turn(lock, '2', OUTSIDE_TURN)
  elseif woken > 0 then
    set_turn(lock, '1', OUTSIDE_TURN)
  end
end

-- For how many ms waiters outside the line go before the first in line; nil if they do not. `taken`: the lock is held.
local function outside_turn(lock, taken)
  if redis.call('GET', lock.outside) ~= '1' then
    return nil
  elseif taken then
    redis.call('DEL', lock.outside)
    return nil
  end
  local left = redis.call('PTTL', lock.outside)
  return left > 0 and left or nil
end

-- For how many ms an attempt without a place is refused although the lock is free, because ids wait in line and have their
-- turn; nil if it may take the lock.
local function turn_of_line(lock, v)
  if redis.call('GET', lock.outside) == '2' and is_in_line(lock, v) then
    return math.max(1, redis.call('PTTL', lock.outside))
  end
end

-- Who goes before an attempt in line. Returns for how many ms an earlier id may block it at most, or nil; for how many ms
-- waiters outside the line have their turn, or nil; whether a dead id was dropped. `taken`: the lock is held.
local function who_goes_first(lock, id, v, taken)
  local first, lives, dropped = first_in_line(lock, v)
  if first and first ~= id then
    return math.max(1, lives - v), nil, dropped
  end
  return nil, outside_turn(lock, taken), dropped
end

-- An attempt is granted a hold, and gives up its place. If it has none and ids wait in line, they have the next turn.
local function enter(lock, id, lease, now, v, void, has_place)
  leave_line(lock, id)
  if not has_place and is_in_line(lock, v) then
    set_turn(lock, '0', math.max(lease, IN_FRONT))
  end
  tidy_up(lock, now, void)
end
