-- Ends a read hold (PROTOCOL 1.3). Beside a writer, the lock's expiry does not change. A reader whose timeout key has
-- expired was gone before, but its field is still removed.
-- keys     1 lock hash, 2 channel, 3 own reader timeout, 4 waiting writers, 5 line
-- args     1 hold id, 2 publish command (absent: PUBLISH)
-- removed, lived  whether the field of the hold, and its reader timeout, were removed before, 0 or 1 (absent: it was not
--          tried)
-- Returns  1 ended, 0 gone before, -1 ended and data of the application is left
-- Needs    on_hash.lua, now.lua, line.lua, settle.lua and what it needs
local function leave_read(keys, args, removed, lived)
  lived = lived or redis.call('DEL', keys[3])
  if (removed or on_hash('HDEL', keys[1], args[1])) == 0 then
    return 0
  end
  local left = redis.call('HLEN', keys[1])
  if left > 1 and redis.call('HGET', keys[1], 'mode') == 'write' then
    return lived
  end
  local lives, data, unknown = settle(keys[1], tag_of(keys[4]), left)
  if data and not lives then
    leave_data(keys[1])
  end
  if unknown or not lives then
    local publish = args[2] or 'PUBLISH'
    redis.call(publish, keys[2], '0')
    call_first(keys[5], keys[4], publish)
  end
  return lived == 1 and data and -1 or lived
end
