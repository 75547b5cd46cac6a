-- Ends an exclusive hold (PROTOCOL 1.1).
-- keys     1 lock hash, 2 channel
-- args     1 hold id, 2 publish command
-- Returns  0 gone before; ended: one more than the subscribers that were woken, or -1 if data of the application is left
-- Needs    end_hold.lua
local function leave_exclusive(keys, args)
  local ended = end_hold(keys[1], args[1])
  if ended == 0 then
    return 0
  end
  local woken = redis.call(args[2], keys[2], '0')
  return ended == 1 and 1 + woken or -1
end
