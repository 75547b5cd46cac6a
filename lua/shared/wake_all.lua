-- Wakes all who wait for a read-write lock. Redisson's `1` wakes the threads that sleep already; one that was refused and
-- does not sleep yet would miss it and sleep for the rest of the lease it saw. A `0` is kept for that thread. Returns how
-- many subscribers were woken.
local function wake_all(publish, channel)
  local woken = redis.call(publish, channel, '1')
  redis.call(publish, channel, '0')
  return woken
end
