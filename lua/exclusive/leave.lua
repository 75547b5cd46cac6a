-- Ends an exclusive hold (PROTOCOL 1.1).
-- keys     1 lock hash, 2 channel, 3 waiting, 4 line, 5 turn of those outside
-- args     1 hold id, 2 publish command (absent: PUBLISH)
-- removed  whether the field of the hold was removed before, 0 or 1 (absent: it was not tried)
-- Returns  0 gone before; if it ended: one more than the subscribers of Redisson's channel, or -1 if data of the application
--          is left
-- Needs    end_hold.lua, now.lua, line.lua, outside.lua
local function leave_exclusive(keys, args, removed)
  if (removed or on_hash('HDEL', keys[1], args[1])) == 0 then
    return 0
  end
  local ended, publish = tidy(keys[1]), args[2] or 'PUBLISH'
  local woken = redis.call(publish, keys[2], '0')
  give_outside_turn(keys[5], woken)
  call_first(keys[4], keys[3], publish)
  return ended == 1 and 1 + woken or -1
end
