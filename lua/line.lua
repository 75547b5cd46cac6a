-- The line of our processes that wait for an exclusive hold: a sorted set, hold id -> ticket. Beside it, `writers` says until
-- when an id counts as waiting: an id that is absent or expired there is dead. Clients of Redisson are not in the line and do
-- not know it. Needs time.lua.

-- The most dead ids that one script drops, so that its cost does not depend on the length of the line.
local DROPS = 16

-- An id waits, in a set of ids with the times until which they count as waiting.
local function join(set, id, v)
  redis.call('ZADD', set, string.format('%.0f', v + LIVENESS), id)
  redis.call('PEXPIRE', set, KEPT)
end

-- For how many ms an attempt in the set still counts as waiting; nil if none does.
local function waiting(set, v)
  redis.call('ZREMRANGEBYSCORE', set, '-inf', v)
  local last = redis.call('ZREVRANGE', set, 0, 0, 'WITHSCORES')
  return last[2] and last[2] - v
end

local function leave_line(lock, id)
  redis.call('ZREM', lock.line, id)
  return redis.call('ZREM', lock.writers, id) == 1
end

-- Drops dead ids. Returns the first in line; until when it counts as waiting; whether one was dropped. If there are too
-- many dead ids, the first is dead, and the next question drops more.
local function first_in_line(lock, v)
  for dropped = 0, DROPS do
    local id = redis.call('ZRANGE', lock.line, 0, 0)[1]
    local lives = id and tonumber(redis.call('ZSCORE', lock.writers, id) or 0)
    if not id or lives > v or dropped == DROPS then
      return id, lives, dropped > 0
    end
    leave_line(lock, id)
  end
end

-- Wakes the process of the first in line, on its own channel. Returns whether there is one.
local function call_first(lock, v, publish)
  local id = first_in_line(lock, v)
  if id then
    redis.call(publish, lock.turn .. ':' .. id:match('^[^:]*'), '0')
  end
  return id
end

-- Removes a waiting id from the line. The next one is woken if it is the first now, because it may have to listen on
-- another channel. Returns whether the id was waiting.
local function give_up_place(lock, id, v, publish)
  local first, _, dropped = first_in_line(lock, v)
  local waited = leave_line(lock, id)
  if first == id or dropped then
    call_first(lock, v, publish)
  end
  return waited
end

-- Refuses an attempt for `left` ms; it takes a place at the end of the line, or keeps its own. If `listens`, it is first in
-- line and may wait for a hold of Redisson.
local function refuse_in_line(lock, id, now, v, publish, dropped, left, listens)
  local lives = redis.call('ZSCORE', lock.writers, id)
  if tonumber(lives or 0) <= v or not redis.call('ZSCORE', lock.line, id) then
    local last = redis.call('ZREVRANGE', lock.line, 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', lock.line, string.format('%.0f', math.max(now * 1000, last + 1)), id)
  end
  join(lock.writers, id, v)
  redis.call('PEXPIRE', lock.line, KEPT)
  asked(lock, now, v)
  if dropped then
    call_first(lock, v, publish)
  end
  return listens and {1, left, 1} or {1, left}
end

-- Whether a living id is in line. Looks at as many as one script drops, and drops none.
local function is_in_line(lock, v)
  for _, id in ipairs(redis.call('ZRANGE', lock.line, 0, DROPS)) do
    if tonumber(redis.call('ZSCORE', lock.writers, id) or 0) > v then
      return true
    end
  end
  return false
end
