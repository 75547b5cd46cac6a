-- Ends a write hold (PROTOCOL 1.3). If the writer also reads, its read remains, and the lock with it. The readers that wait
-- now get passes: they go before the next writer.
-- keys     1 lock hash, 2 channel, 3 waiting readers, 4 passes, 5 waiting writers, 6 line, 7 turn of those outside
-- args     1 hold id, 2 publish command (absent: PUBLISH)
-- removed  whether the field of the hold was removed before, 0 or 1 (absent: it was not tried)
-- Returns  0 gone before; if it ended: one more than the subscribers of Redisson's channel, or -1 if data of the application
--          is left
-- Needs    on_hash.lua, now.lua, line.lua, outside.lua, wake_all.lua, settle.lua and what it needs, write/pass.lua
local function leave_write(keys, args, removed)
  if (removed or on_hash('HDEL', keys[1], args[1] .. ':write')) == 0 then
    return 0
  end
  local publish, tag = args[2] or 'PUBLISH', tag_of(keys[5])
  local lives, data = settle(keys[1], tag, redis.call('HLEN', keys[1]))
  if lives then
    redis.call('HSET', keys[1], 'mode', 'read')
  elseif data then
    leave_data(keys[1])
  end
  pass(keys[3], keys[4], keys[5], publish)
  local woken = wake_all(publish, keys[2])
  give_outside_turn(keys[7], woken)
  call_first(keys[6], keys[5], publish)
  return data and -1 or 1 + woken
end
