-- The line of our processes that wait for an exclusive hold: a sorted set, hold id -> ticket. Beside it is a set of
-- waiters (waiters.lua), hold id -> the ms until which it counts as waiting: an id that is absent or expired there is
-- dead. Both expire with the last id that asked. Clients of Redisson are not in the line and do not know it.
-- Needs    now.lua, waiters.lua

-- The most dead ids that one script drops, so that its cost does not depend on the length of the line.
local DROPS_IN_LINE = 16

local function leave_line(line, alive, id)
  redis.call('ZREM', line, id)
  return redis.call('ZREM', alive, id) == 1
end

-- Drops dead ids. Returns the first in line; until when it counts as waiting; whether one was dropped. If there are too
-- many dead ids, the first is dead, and the next question drops more.
local function first_in_line_of_ours(line, alive, now)
  for dropped = 0, DROPS_IN_LINE do
    local id = redis.call('ZRANGE', line, 0, 0)[1]
    local lives = id and tonumber(redis.call('ZSCORE', alive, id) or 0)
    if not id or lives > now or dropped == DROPS_IN_LINE then
      return id, lives, dropped > 0
    end
    leave_line(line, alive, id)
  end
end

-- The name that a key or a channel of the lock has after its prefix. `alive` is `tower_lock_writers:<this>`.
local function tag_of(alive)
  return alive:sub(20)
end

-- Wakes the process of the first in line, on its own channel.
local function call_first(line, alive, publish)
  if redis.call('EXISTS', line) == 1 then
    local id = first_in_line_of_ours(line, alive, now_ms())
    if id then
      redis.call(publish, 'tower_lock_turn:' .. tag_of(alive) .. ':' .. id:match('^[^:]*'), '0')
    end
  end
end

-- Removes a waiting id from the line. The next one is woken if it is the first now, because it may have to listen on
-- another channel. Returns whether the id was waiting.
local function give_up_place(line, alive, id, publish)
  local first, _, dropped = first_in_line_of_ours(line, alive, now_ms())
  local waited = leave_line(line, alive, id)
  if first == id or dropped then
    call_first(line, alive, publish)
  end
  return waited
end
