-- The fair queue (PROTOCOL 1.2): a list of ids; beside it Redisson's sorted set, id -> the ms until which it may block
-- the head; and one of ours, id -> the ms until which it counts as alive. An id that never was in ours is Redisson's and
-- knows Redisson's rule only; one of ours that lapsed stays in it, so that it is not taken for Redisson's.
-- Needs    now.lua
local function forget(queue, timeouts, alive, id)
  redis.call('LREM', queue, 0, id)
  redis.call('ZREM', timeouts, id)
  redis.call('ZREM', alive, id)
end

-- The first in line after everybody whose time is over, and whether anybody was dropped to find it.
local function first_in_line(queue, timeouts, alive, now)
  local dropped = false
  while true do
    local head = redis.call('LINDEX', queue, 0)
    if not head then
      return nil, dropped
    end
    local blocks = redis.call('ZSCORE', timeouts, head)
    local lives = redis.call('ZSCORE', alive, head)
    if tonumber(blocks or now + 1) > now and tonumber(lives or now + 1) > now then
      if not blocks then
        -- Nobody would ever drop it.
        redis.call('ZADD', timeouts, now + 30000, head)
      end
      return head, dropped
    end
    forget(queue, timeouts, alive, head)
    dropped = true
  end
end

-- Takes what it waited off those who joined later.
local function advance(timeouts, ids, from, wait)
  for i = from, #ids do
    if redis.call('ZSCORE', timeouts, ids[i]) then
      redis.call('ZINCRBY', timeouts, -wait, ids[i])
    end
  end
end
