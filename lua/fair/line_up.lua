-- Puts an attempt that Redisson has dropped in front of the queue again. Redisson drops only the head, by its score: an
-- attempt that is alive and has no score was the head.
-- Needs    fair/queue.lua
local function line_up_again(queue, timeouts, alive, id, now)
  local lives = not redis.call('ZSCORE', timeouts, id) and redis.call('ZSCORE', alive, id)
  if lives and tonumber(lives) > now then
    redis.call('LREM', queue, 1, id)
    redis.call('LPUSH', queue, id)
    redis.call('ZADD', timeouts, lives + MARGIN, id)
  end
end

-- Adds an attempt at the end of the queue, or keeps it alive in its place. `head` is the first in the queue.
local function line_up(queue, timeouts, alive, id, now, liveness, head)
  local lives, blocks = redis.call('ZSCORE', alive, id), redis.call('ZSCORE', timeouts, id)
  if tonumber(lives or now + 1) <= now then
    forget(queue, timeouts, alive, id)
    lives, blocks = false, false
  end
  local near = now + liveness + MARGIN
  local score = near
  if blocks and head ~= id then
    -- Redisson lowers each score at a grant, and this keeps what it subtracted. The rest of the score moves with the time
    -- since the last question.
    score = blocks + (lives and now + liveness - lives or 0)
  elseif not blocks then
    local last = redis.call('LINDEX', queue, -1)
    local before = last and redis.call('ZSCORE', timeouts, last)
    if before then
      score = before + (redis.call('ZSCORE', alive, last) and 0 or liveness + MARGIN)
    end
    redis.call('RPUSH', queue, id)
  end
  score = math.max(score, near)
  redis.call('ZADD', timeouts, score, id)
  redis.call('ZADD', alive, now + liveness, id)
  -- The set is kept as long as one of its ids may be in the queue, even if all of them die now.
  redis.call('PEXPIRE', alive, string.format('%.0f', math.max(score - now, redis.call('PTTL', alive))))
end
