-- Ends a read hold (PROTOCOL 1.3). The hash then lives as long as its longest-lived reader; beside a writer its life is
-- left alone. A reader whose timeout key lapsed was gone before, but its field still goes.
-- Needs    on_hash.lua, living.lua
local function leave(name, channel, timeout, id, publish, prefix)
  local lived = redis.call('DEL', timeout)
  if on_hash('HDEL', name, id) == 0 then
    return 0
  end
  if redis.call('HLEN', name) > 1 then
    if redis.call('HGET', name, 'mode') == 'write' then
      return lived
    end
    local left = living(name, prefix)
    if left then
      redis.call('PEXPIRE', name, left)
      return lived
    end
  end
  redis.call('DEL', name)
  redis.call(publish, channel, '0')
  return lived
end
