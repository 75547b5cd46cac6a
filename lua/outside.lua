-- The turn of those that wait outside the line: clients of Redisson, and attempts without a place. They ask whenever they
-- are woken, and the line does not delay them. A release that wakes some of them gives one of them time to take the lock
-- before the line. The turn ends when a question finds the lock taken. If one of our attempts without a place takes it, the
-- next turn belongs to the line, in which other such attempts are refused: the line is not overtaken again and again. The
-- word `turn` of what is unusual says so: `1` while those outside have their turn, `2` while the line has its turn, `3` while a
-- hold lasts that was granted in front of the line. It has no meaning if none waits in line. Needs time.lua, line.lua.

--# turn
-- The length of the turn in ms: the time of a message, and of a question from a client that must wake a thread first.
local OUTSIDE_TURN = 5

local function set_turn(lock, turn)
  lock.turn, lock.ends = turn, lock.v + OUTSIDE_TURN
  keep(lock)
end

--# give
-- Begins the turn after a release that woke `woken` subscribers outside the line, or the turn of the line.
local function give_turn(lock, woken)
  if lock.turn == '3' then
    set_turn(lock, '2')
  elseif woken > 0 then
    set_turn(lock, '1')
  end
end

--# ask
-- For how many ms an attempt without a place is refused although the lock is free, because ids wait in line and have their
-- turn; nil if it may take the lock.
local function turn_of_line(lock)
  if lock.turn == '2' and is_in_line(lock) then
    return lock.ends - lock.v
  end
end

-- Who goes before an attempt in line. Returns for how many ms an earlier id may block it at most, or nil; for how many ms
-- waiters outside the line have their turn, or nil. `taken`: the lock is held, which ends that turn.
local function who_goes_first(lock, id, taken)
  local first, lives
  if lock.asked then
    first, lives = first_in_line(lock, id)
  end
  if first and first ~= id then
    return math.max(1, lives - lock.v)
  elseif lock.turn == '1' and taken then
    lock.turn = false
    keep(lock)
  end
  return nil, lock.turn == '1' and lock.ends - lock.v or nil
end

-- An attempt is granted a hold, and gives up its place. If it has none and ids wait in line, they have the next turn. The other
-- arguments are those of `tidy_up`.
local function enter(lock, id, in_line, ...)
  if lock.asked then
    leave_line(lock, id)
  end
  if not in_line and is_in_line(lock) then
    set_turn(lock, '3')
  else
    tidy_up(lock, 'line', ...)
  end
end
