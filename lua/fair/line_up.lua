-- Puts an attempt at the end of the queue, or says that it is still alive there. `left` is the rest of the present lease.
-- Needs    fair/queue.lua
local function line_up(queue, timeouts, alive, id, now, wait, left, liveness)
  if tonumber(redis.call('ZSCORE', alive, id) or now + 1) <= now then
    forget(queue, timeouts, alive, id)
  end
  local blocks = redis.call('ZSCORE', timeouts, id)
  if not blocks then
    local last = redis.call('LINDEX', queue, -1)
    blocks = (last and redis.call('ZSCORE', timeouts, last) or now + left) + wait
    redis.call('ZADD', timeouts, blocks, id)
    redis.call('RPUSH', queue, id)
  end
  redis.call('ZADD', alive, now + liveness, id)
  -- The entry must be there for as long as the id may be in the queue, even if it dies now.
  local stay = math.max(liveness, blocks - now, redis.call('PTTL', alive))
  redis.call('PEXPIRE', alive, string.format('%.0f', stay))
end
