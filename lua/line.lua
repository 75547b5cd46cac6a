-- The line of our processes that wait for an exclusive hold: a sorted set, hold id -> ticket. Beside it, `writers` says until
-- when an id counts as waiting: an id that is absent or expired there is dead. Clients of Redisson are not in the line and do
-- not know it. Needs time.lua.

--# first
-- The most dead ids that one script drops, so that its cost does not depend on the length of the line.
local DROPS = 16

local function leave_line(lock, id)
  redis.call('ZREM', 'tower_lock_line:' .. lock.tag, id)
  return redis.call('ZREM', 'tower_lock_writers:' .. lock.tag, id) == 1
end

-- Drops dead ids. Returns the first in line, and until when it counts as waiting. If there are too many dead ids, the first is
-- dead, and the next question drops more. Notes it, and the score of `id` if it is the first, and whether one was dropped.
local function first_in_line(lock, id)
  lock.first, lock.own, lock.dropped = false, false, false
  for dropped = 0, DROPS do
    local first = redis.call('ZRANGE', 'tower_lock_line:' .. lock.tag, 0, 0)[1]
    if not first then
      return nil
    end
    local lives = redis.call('ZSCORE', 'tower_lock_writers:' .. lock.tag, first)
    if is_live(lock, lives) or dropped == DROPS then
      lock.first, lock.own = first, first == id and lives
      return first, tonumber(lives or 0)
    end
    leave_line(lock, first)
    lock.dropped = true
  end
end

-- Wakes the process of the first in line, on its own channel. Returns whether there is one.
local function call_first(lock, publish)
  local id = lock.asked and first_in_line(lock)
  if id then
    redis.call(publish, 'tower_lock_turn:' .. lock.tag .. ':' .. id:sub(1, 36), '0')
  end
  return id
end

--# waiting
-- An id waits, in a set of ids with the times until which they count as waiting. `ask_now` follows, which keeps the set if someone
-- has asked before: after a silence the set may be about to end.
local function join(lock, kind, id)
  local set = 'tower_lock_' .. kind .. ':' .. lock.tag
  if redis.call('ZADD', set, lock.v + LIVENESS, id) == 1 or not lock.asked then
    redis.call('PEXPIRE', set, KEPT_TEXT)
  end
end

-- Whether an attempt in the set counts as waiting.
local function has_living(lock, kind)
  local set = 'tower_lock_' .. kind .. ':' .. lock.tag
  return lock.asked and redis.call('EXISTS', set) == 1 and redis.call('ZCOUNT', set, '(' .. lock.v, lock.v + KEPT) > 0
end

-- For how many ms an attempt in the set still counts as waiting; nil if none does.
local function waiting(lock, kind)
  if has_living(lock, kind) then
    local last = redis.call('ZREVRANGE', 'tower_lock_' .. kind .. ':' .. lock.tag, 0, 0, 'WITHSCORES')
    return math.min(last[2] - lock.v, LIVENESS)
  end
end

--# wait
-- Refuses an attempt for `left` ms, after `first_in_line`; it takes a place at the end of the line, or keeps its own. If
-- `listens`, it is first in line and may wait for a hold of Redisson.
local function refuse_in_line(lock, id, publish, left, listens)
  local line, writers = 'tower_lock_line:' .. lock.tag, 'tower_lock_writers:' .. lock.tag
  local own = lock.own or lock.first and redis.call('ZSCORE', writers, id)
  if not is_live(lock, own) then
    -- Behind all others, also after a clock that has stepped back.
    local last = lock.first and redis.call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', line, math.max(lock.v * 1000 + lock.micros, last + 1), id)
  end
  if not has_just_asked(lock, own) then
    redis.call('ZADD', writers, lock.v + LIVENESS, id)
  end
  if not lock.first then
    redis.call('PEXPIRE', line, KEPT_TEXT)
    redis.call('PEXPIRE', writers, KEPT_TEXT)
  end
  ask_now(lock)
  if lock.dropped then
    call_first(lock, publish)
  end
  return listens and {1, left, 1} or {1, left}
end

--# withdraw
-- Removes a waiting id from the line. The next one is woken if it is the first now, because it may have to listen on
-- another channel. Returns whether the id was waiting.
local function give_up_place(lock, id, publish)
  if not lock.asked then
    return false
  end
  local first = first_in_line(lock)
  local called = first == id or lock.dropped
  local waited = leave_line(lock, id)
  if called then
    call_first(lock, publish)
  end
  return waited
end

--# beside
-- Whether a living id is in line. Looks at as many as one script drops, and drops none.
local function is_in_line(lock)
  for _, id in ipairs(lock.asked and redis.call('ZRANGE', 'tower_lock_line:' .. lock.tag, 0, DROPS) or {}) do
    if is_live(lock, redis.call('ZSCORE', 'tower_lock_writers:' .. lock.tag, id)) then
      return true
    end
  end
  return false
end
