-- The fair queue (PROTOCOL 1.2): a list of ids; beside it Redisson's sorted set, id -> the ms until which it may block
-- the head; and one of ours, id -> the ms until which it counts as alive. An id that is not in our set is Redisson's:
-- its score alone decides when it is dropped. For an id of ours, our set alone decides. Its score is kept near, so
-- that Redisson drops it when it is dead. The score may pass while the id is alive, because each grant of Redisson
-- lowers the scores of all waiters. An expired id of ours stays in our set until it is dropped, so that it does not
-- count as Redisson's.

-- The most dead heads that one script drops, so that its cost does not depend on the length of the queue.
local DROPS = 16
-- How many ms longer Redisson waits for a dead waiter of ours than our scripts do: the clocks of its clients may
-- differ by so much.
local MARGIN = 2000

local function forget(queue, timeouts, alive, id)
  redis.call('LREM', queue, 1, id)
  redis.call('ZREM', timeouts, id)
  redis.call('ZREM', alive, id)
end

-- Drops dead heads. Returns the first in the queue; whether one was dropped; whether more may have to be dropped.
local function first_in_line(queue, timeouts, alive, now)
  for dropped = 0, DROPS do
    local head = redis.call('LINDEX', queue, 0)
    if not head or dropped == DROPS then
      return head, dropped > 0, dropped == DROPS and head
    end
    local blocks, lives = redis.call('ZSCORE', timeouts, head), redis.call('ZSCORE', alive, head)
    if tonumber(lives or blocks or now + 1) > now then
      -- Redisson would drop a live head whose score has passed, and never drop a head without a score.
      if tonumber(blocks or 0) <= now then
        redis.call('ZADD', timeouts, lives and lives + MARGIN or now + 30000, head)
      end
      return head, dropped > 0, false
    end
    forget(queue, timeouts, alive, head)
  end
end
