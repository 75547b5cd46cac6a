-- Wakes all waiters for a read-write lock. Redisson's `1` wakes threads that sleep already. A thread that was refused and
-- does not sleep yet would miss it, and sleep for the rest of the lease that it saw. Redisson keeps a `0` for that
-- thread; without subscribers there is no such thread. Returns how many subscribers were woken.
local function wake_all(publish, channel)
  local woken = redis.call(publish, channel, '1')
  if woken > 0 then
    redis.call(publish, channel, '0')
  end
  return woken
end
