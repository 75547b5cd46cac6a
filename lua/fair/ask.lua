-- Decides whether an exclusive hold can be granted to the first in the queue now (PROTOCOL 1.2). Returns the reason of
-- the refusal, or nil and the function that grants. A refused attempt that waits gets a place in the queue.
-- keys     as fair/acquire.lua
-- args     as fair/acquire.lua
-- taken    whether a key of the lock is known to exist
-- Needs    exclusive/grant.lua, now.lua, holds.lua, fair/queue.lua, fair/line_up.lua
local function ask_fair(keys, args, taken)
  local name, alive, timeouts, queue, id = keys[1], keys[3], keys[4], keys[5], args[2]

  local function grant()
    return grant_exclusive(keys, args)
  end

  if not taken and is_free_exclusive(keys) then
    return nil, grant
  end
  if redis.call('EXISTS', keys[2]) == 1 then
    return 2
  end
  local held = redis.call('HMGET', name, id, 'mode')
  if held[2] then
    return is_mode('mode', held[2]) and 3 or 5
  end
  if held[1] then
    return nil, grant
  end

  local now, liveness, left = now_ms(), tonumber(args[3]), redis.call('PTTL', name)
  if left == -1 then
    return 4
  end
  line_up_again(queue, timeouts, alive, id, now)
  local head, dropped, more = first_in_line(queue, timeouts, alive, now)
  if left == -2 and not more and (not head or head == id) then
    return nil, function()
      local granted = grant()
      forget(queue, timeouts, alive, id)
      return granted
    end
  end
  if left == -2 then
    local lives = redis.call('ZSCORE', alive, head)
    -- A waiter of Redisson may have missed its turn: up to version 3.31 it sleeps until a message arrives, and no
    -- other message will arrive. `alive` is `tower_lock_alive:{<name>}`.
    if dropped or not lives then
      redis.call(args[4] or 'PUBLISH', 'redisson_lock__channel:' .. alive:sub(18) .. ':' .. head, '0')
    end
    -- The lock waits for its next holder: as long as that waiter counts as alive, or a second for a waiter of
    -- Redisson. If there may be more dead heads, the next question drops them.
    left = more and 1 or (lives or now + 1000) - now
  end
  if liveness > 0 then
    line_up(queue, timeouts, alive, id, now, liveness, head)
  end
  return {1, left}
end
