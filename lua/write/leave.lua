-- Ends a write hold (PROTOCOL 1.3). If the writer also reads, its read stays and the hash lives on with it. The readers
-- that wait at this moment get passes: they go before the next writer. Returns 0 if it was gone before, else one more
-- than have heard of it.
-- Needs    on_hash.lua, now.lua, living.lua, write/pass.lua
local function leave(name, channel, readers, passes, id, publish, prefix)
  if on_hash('HDEL', name, id .. ':write') == 0 then
    return 0
  end
  local left = redis.call('HLEN', name) > 1 and living(name, prefix)
  if left then
    redis.call('HSET', name, 'mode', 'read')
    redis.call('PEXPIRE', name, left)
  else
    redis.call('DEL', name)
  end
  pass(readers, passes)
  return 1 + redis.call(publish, channel, '1')
end
