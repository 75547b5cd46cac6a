-- The fair queue (PROTOCOL 1.2): a list of ids; beside it Redisson's sorted set, id -> the ms until which it may block the head;
-- and one of ours, `alive`, id -> until when it counts as alive. An id that is not in our set is Redisson's: its score alone
-- decides when it is dropped. For an id of ours, our set alone decides. Its score is kept near, so that Redisson drops it when
-- it is dead. The score may pass while the id is alive, because each grant of Redisson lowers the scores of all waiters. An
-- expired id of ours stays in our set until it is dropped, so that it does not count as Redisson's. Needs time.lua, line.lua.

-- The most dead heads that one script drops, so that its cost does not depend on the length of the queue.
local DROPPED = 16
-- How many ms longer Redisson waits for a dead waiter of ours than our scripts do: the clocks of its clients may
-- differ by so much.
local MARGIN = 2000
-- For how many ms a queue is kept in which no one asks: all ids in it are ours. Redisson's queues do not expire.
local ABANDONED = 86400000

local function queue_of(lock)
  return 'redisson_lock_queue:' .. lock.tag, 'redisson_lock_timeout:' .. lock.tag
end

local function forget(lock, id)
  local queue, timeouts = queue_of(lock)
  redis.call('LREM', queue, 1, id)
  redis.call('ZREM', timeouts, id)
  redis.call('ZREM', lock.alive, id)
end

-- Drops dead heads. Returns the first in the queue; whether one was dropped; whether more may have to be dropped.
local function first_in_queue(lock, now, v)
  local queue, timeouts = queue_of(lock)
  for dropped = 0, DROPPED do
    local head = redis.call('LINDEX', queue, 0)
    if not head or dropped == DROPPED then
      return head, dropped > 0, dropped == DROPPED and head
    end
    local blocks, lives = redis.call('ZSCORE', timeouts, head), redis.call('ZSCORE', lock.alive, head)
    if lives and tonumber(lives) > v or not lives and tonumber(blocks or now + 1) > now then
      -- Redisson would drop a live head whose score has passed, and never drop a head without a score.
      if tonumber(blocks or 0) <= now then
        redis.call('ZADD', timeouts, now + (lives and lives - v + MARGIN or 30000), head)
      end
      return head, dropped > 0, false
    end
    forget(lock, head)
  end
end

-- Wakes the first in the queue, if a waiter of ours may be in it. Redisson's plain locks wake none.
local function call_head(lock, now, v, publish)
  local head = redis.call('EXISTS', lock.alive) == 1 and first_in_queue(lock, now, v)
  if head then
    redis.call(publish, 'redisson_lock__channel:' .. lock.tag .. ':' .. head, '0')
  end
end

-- Wakes the first in the queue. If it is empty, wakes waiters without a place in it: on the channel of Redisson's plain locks,
-- and the first in our line. Redisson wakes no waiter then.
local function wake(lock, channel, now, v, publish)
  local head = first_in_queue(lock, now, v)
  redis.call(publish, head and channel .. ':' .. head or channel, '0')
  if not head then
    call_first(lock, v, publish)
  end
end
