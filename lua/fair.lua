-- Fair holds (PROTOCOL 1.2). Needs time.lua, hash.lua, line.lua, queue.lua; to ask token.lua and the grant of exclusive.lua.

--# leave_lone
-- This comes before the functions: in the usual case the script returns before Redis creates them, which saves time. Nothing
-- else has the lock's name, nothing is unusual, no one queues, and no client of Redisson listens. Otherwise `removed` is the
-- answer to HDEL.
local removed
if ARGV[3] ~= 'withdraw' then
  removed = redis.pcall('HDEL', KEYS[1], ARGV[1])
  if removed == 1 and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[4]) == 0 then
    redis.call(ARGV[2] or 'PUBLISH', KEYS[3], '0')
    return 1
  end
end

--# grant_free
-- The same for a question. Waiters of Redisson leave no trace but the queue.
if not KEYS[4] and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[2], '1')
  if redis.pcall('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
    return 0
  end
end

--# ask
-- Puts an attempt that Redisson has dropped in front of the queue again. Redisson drops only the head, by its score: an
-- attempt that is alive and has no score was the head.
local function line_up_again(lock, id, now, v)
  local queue, timeouts = queue_of(lock)
  local lives = not redis.call('ZSCORE', timeouts, id) and redis.call('ZSCORE', lock.alive, id)
  if lives and tonumber(lives) > v then
    redis.call('LREM', queue, 1, id)
    redis.call('LPUSH', queue, id)
    redis.call('ZADD', timeouts, now + lives - v + MARGIN, id)
  end
end

-- Adds an attempt at the end of the queue, or keeps it alive in its place. `head` is the first in the queue.
local function line_up(lock, id, now, v, head)
  local queue, timeouts = queue_of(lock)
  local lives, blocks = redis.call('ZSCORE', lock.alive, id), redis.call('ZSCORE', timeouts, id)
  if tonumber(lives or v + 1) <= v then
    forget(lock, id)
    lives, blocks = false, false
  end
  local near = now + LIVENESS + MARGIN
  local score = near
  if blocks and head ~= id then
    -- Redisson lowers each score at a grant, and this keeps what it subtracted. The rest of the score moves with the time
    -- since the last question.
    score = blocks + (lives and v + LIVENESS - lives or 0)
  elseif not blocks then
    local last = redis.call('LINDEX', queue, -1)
    local before = last and redis.call('ZSCORE', timeouts, last)
    if before then
      score = before + (redis.call('ZSCORE', lock.alive, last) and 0 or LIVENESS + MARGIN)
    end
    redis.call('RPUSH', queue, id)
  end
  score = math.max(score, near)
  redis.call('ZADD', timeouts, score, id)
  redis.call('ZADD', lock.alive, string.format('%.0f', v + LIVENESS), id)
  -- The set is kept as long as one of its ids may be in the queue, even if all of them die now.
  keep(lock.alive, math.max(score - now, KEPT))
  asked(lock, now, v)
  if redis.call('ZCARD', lock.alive) == redis.call('ZCARD', timeouts) then
    redis.call('PEXPIRE', queue, ABANDONED)
    redis.call('PEXPIRE', timeouts, ABANDONED)
  else
    redis.call('PERSIST', queue)
    redis.call('PERSIST', timeouts)
  end
end

-- Decides whether an exclusive hold can be granted to the first in the queue now. Returns the reason of the refusal, or nil and
-- the function that grants. A refused attempt that waits gets a place in the queue.
local function ask_fair(keys, args)
  local name, lock, id = keys[1], names(keys[2]), args[2]

  local function grant()
    return grant_exclusive(keys, args, keys[4])
  end

  if redis.call('EXISTS', name, lock.busy, keys[3]) == 0 then
    return nil, grant
  end
  local now = now_ms()
  local v, void = waiters_time(lock, now)
  if is_void(lock, void, args[4], id) then
    return 2
  end
  local why, held, left = look_at_exclusive(name, id)
  if why or held then
    return why, grant
  end
  line_up_again(lock, id, now, v)
  local head, dropped, more = first_in_queue(lock, now, v)
  if left == -2 and not more and (not head or head == id) then
    return nil, function()
      local granted = grant()
      forget(lock, id)
      tidy_up(lock, now, void)
      return granted
    end
  end
  if left == -2 then
    local lives = redis.call('ZSCORE', lock.alive, head)
    -- A waiter of Redisson may have missed its turn: up to version 3.31 it sleeps until a message arrives, and no
    -- other message will arrive.
    if dropped or not lives then
      redis.call(args[5] or 'PUBLISH', 'redisson_lock__channel:' .. lock.tag .. ':' .. head, '0')
    end
    -- The lock waits for its next holder: as long as that waiter counts as alive, or a second for a waiter of
    -- Redisson. If there may be more dead heads, the next question drops them.
    left = more and 1 or lives and lives - v or 1000
  end
  if args[3] ~= '0' then
    line_up(lock, id, now, v, head)
  end
  return {1, left}
end

--# leave
-- Ends a hold, and wakes the first in the queue. For an expired hold, Redisson answers that it was released. This answers that
-- it was gone, and also wakes the first in the queue. Returns 1 ended, 0 gone before, -1 ended and other data is left.
local function leave_fair(keys, args, removed)
  removed = removed or on_hash('HDEL', keys[1], args[1])
  local alone = removed == 0 or is_alone(keys[1])
  if removed == 0 and (redis.call('EXISTS', keys[1]) == 1 or redis.call('EXISTS', keys[4]) == 0) then
    return 0
  end
  local lock, now = names(keys[2]), now_ms()
  local v, void = waiters_time(lock, now)
  wake(lock, keys[3], now, v, args[2] or 'PUBLISH')
  tidy_up(lock, now, void)
  return removed == 0 and 0 or alone and 1 or -1
end

--# acquire
local refused, grant = ask_fair(KEYS, ARGV)
return refused or grant()

--# release
if ARGV[3] ~= 'withdraw' then
  return leave_fair(KEYS, ARGV, tonumber(removed))
end
-- Gives up the hold and the place in the queue (PROTOCOL 1.2, acquireFailed). The scores of the waiters behind are near and do
-- not change.
local lock, now, ended = names(KEYS[2]), now_ms(), on_hash('HDEL', KEYS[1], ARGV[1])
if ended == 1 then
  is_alone(KEYS[1])
end
forget(lock, ARGV[1])
if ended == 1 or redis.call('EXISTS', KEYS[1]) == 0 then
  wake(lock, KEYS[3], now, waiters_time(lock, now), ARGV[2])
end
return withdrawn(lock, now, ended)
