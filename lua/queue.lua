-- The fair queue (PROTOCOL 1.2): a list of ids; beside it Redisson's sorted set, id -> the ms until which it may block the head;
-- and one of ours, `alive`, id -> until when it counts as alive. An id that is not in our set is Redisson's: its score alone
-- decides when it is dropped. For an id of ours, our set alone decides. Its score is kept near, so that Redisson drops it when
-- it is dead. The score may pass while the id is alive, because each grant of Redisson lowers the scores of all waiters. An
-- expired id of ours stays in our set until it is dropped, so that it does not count as Redisson's. Needs time.lua, line.lua.

--# first
-- The most dead heads that one script drops, so that its cost does not depend on the length of the queue.
local DROPPED = 16
-- How many ms longer Redisson waits for a dead waiter of ours than our scripts do: the clocks of its clients may
-- differ by so much.
local MARGIN = 2000

local function queue_of(lock)
  return 'redisson_lock_queue:' .. lock.tag, 'redisson_lock_timeout:' .. lock.tag
end

-- Ends the expiry of the queue, unless each id in it is ours: Redisson's queues do not expire. Returns whether one is not. When one of
-- ours leaves, no other may be left to ask.
local function is_shared(lock)
  local queue, timeouts = queue_of(lock)
  local shared = redis.call('ZCARD', 'tower_lock_alive:' .. lock.tag) ~= redis.call('ZCARD', timeouts)
  if shared then
    redis.call('PERSIST', queue)
    redis.call('PERSIST', timeouts)
  end
  return shared
end

local function forget(lock, id)
  local queue, timeouts = queue_of(lock)
  redis.call('LREM', queue, 1, id)
  redis.call('ZREM', timeouts, id)
  redis.call('ZREM', 'tower_lock_alive:' .. lock.tag, id)
end

-- Drops dead heads. Returns the first in the queue; until when it lives (false: it is Redisson's), and until when it may block
-- the queue; whether one was dropped; whether more may have to be dropped.
local function first_in_queue(lock)
  local queue, timeouts = queue_of(lock)
  for dropped = 0, DROPPED do
    local head = redis.call('LINDEX', queue, 0)
    if not head then
      return nil, false, false, dropped > 0, false
    end
    local blocks, lives = redis.call('ZSCORE', timeouts, head), redis.call('ZSCORE', 'tower_lock_alive:' .. lock.tag, head)
    if dropped == DROPPED then
      return head, lives, blocks, true, true
    end
    if lives and is_live(lock, lives) or not lives and tonumber(blocks or lock.now + 1) > lock.now then
      -- Redisson would drop a live head whose score has passed, and never drop a head without a score.
      if tonumber(blocks or 0) <= lock.now then
        blocks = lock.now + (lives and lives - lock.v + MARGIN or 30000)
        redis.call('ZADD', timeouts, blocks, head)
      end
      return head, lives, blocks, dropped > 0, false
    end
    forget(lock, head)
  end
end

--# wake
-- Wakes the first in the queue. Redisson's plain locks wake none. Returns whether it is one of ours, and whether there is one.
local function call_head(lock, publish)
  local head, lives = first_in_queue(lock)
  if head then
    redis.call(publish, 'redisson_lock__channel:' .. lock.tag .. ':' .. head, '0')
  end
  return lives, head
end

-- Wakes the first in the queue. If it is empty, wakes waiters without a place in it: on the channel of Redisson's plain locks,
-- and the first in our line. Redisson wakes no waiter then. Returns whether one of ours was woken, and whether anyone queues.
local function wake(lock, channel, publish)
  local ours, head = call_head(lock, publish)
  if head then
    return ours, true
  end
  redis.call(publish, channel, '0')
  return call_first(lock, publish), false
end

--# join
-- For how many ms a queue is kept in which none of ours asks: all ids in it are ours. Redisson's queues do not expire. The
-- expiry is set by the first question, and by the first one of each half of that time.
local ABANDONED = '86400000'

local function keep_queue(lock, is_new)
  if is_new or not is_shared(lock) then
    local queue, timeouts = queue_of(lock)
    redis.call('PEXPIRE', queue, ABANDONED)
    redis.call('PEXPIRE', timeouts, ABANDONED)
  end
end

-- Puts an attempt that Redisson has dropped in front of the queue again. Redisson drops only the head, by its score: an
-- attempt that is alive and has no score was the head. Returns whether it was dropped.
local function line_up_again(lock, id, blocks, lives)
  if blocks or not is_live(lock, lives) then
    return false
  end
  local queue, timeouts = queue_of(lock)
  redis.call('LREM', queue, 1, id)
  redis.call('LPUSH', queue, id)
  redis.call('ZADD', timeouts, lock.now + lives - lock.v + MARGIN, id)
  return true
end

-- Adds an attempt at the end of the queue, or keeps it alive in its place. `head` is the first in the queue, and `ours`
-- says whether it is ours; `blocks` and `lives` say until when the attempt may block the queue, and until when it lives.
local function line_up(lock, id, head, ours, blocks, lives)
  local queue, timeouts = queue_of(lock)
  local alive, near, length = 'tower_lock_alive:' .. lock.tag, lock.now + LIVENESS + MARGIN, 0
  local ahead = blocks and blocks - near
  if has_just_asked(lock, lives) and ahead and ahead > -SOON and (ahead <= 0 or head ~= id) then
    return ask_now(lock, true)
  end
  if lives and not is_live(lock, lives) then
    forget(lock, id)
    lives, blocks = false, false
  end
  local score = near
  if blocks and head ~= id then
    -- Redisson lowers each score at a grant, and this keeps what it subtracted. The rest of the score moves with the time
    -- since the last question.
    score = blocks + (lives and lock.v + LIVENESS - lives or 0)
  elseif not blocks then
    local last = head and redis.call('LINDEX', queue, -1)
    local before = last and redis.call('ZSCORE', timeouts, last)
    if before then
      score = before + (redis.call('ZSCORE', alive, last) and 0 or LIVENESS + MARGIN)
    end
    length = redis.call('RPUSH', queue, id)
  end
  score = math.max(score, near)
  redis.call('ZADD', timeouts, score, id)
  redis.call('ZADD', alive, lock.v + LIVENESS, id)
  -- The set is kept as long as one of its ids may be in the queue, even if all of them die now.
  redis.call('PEXPIRE', alive, string.format('%.0f', math.max(KEPT, score - lock.now, redis.call('PTTL', alive))))
  local half = ABANDONED / 2
  if length == 1 or not (lock.mixed and lock.asked and ours) or math.floor(lock.now / half) ~= math.floor(lock.asked / half) then
    keep_queue(lock, length == 1)
  end
  ask_now(lock, true)
end
