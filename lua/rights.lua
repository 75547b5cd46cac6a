-- Says which commands of the other scripts the user may not run. Nothing that it does has an effect that stays: what
-- would write is asked for in a way that fails after the rights were looked at. A key that the user may not touch is no
-- matter; the channels are those of a lock of that name.
-- ARGV     1 a name that nobody else uses, of a key and of a lock
-- Returns  the commands, and the patterns of channels
local name = ARGV[1]
local calls = {
  {'EXISTS', name}, {'GET', name}, {'HDEL', name, 'f'}, {'HEXISTS', name, 'f'}, {'HGET', name, 'f'},
  {'HGETALL', name}, {'HLEN', name}, {'HMGET', name, 'f'}, {'HRANDFIELD', name, 1},
  {'HSET', name, 'f', 'v', 'a field without a value'}, {'LINDEX', name, 0},
  {'LREM', name, 0, 'v'}, {'PERSIST', name}, {'PEXPIRE', name, 1}, {'PTTL', name}, {'RENAME', name, name},
  {'SET', name, 'v', 'NX', 'XX'}, {'TIME'}, {'ZADD', name, 'no number', 'm'},
  {'ZRANGE', name, 0, 0}, {'ZREM', name, 'm'}, {'ZREMRANGEBYSCORE', name, 0, 0}, {'ZREVRANGE', name, 0, 0},
  {'ZSCORE', name, 'm'},
}

local missing = {}
-- Redis 7 and Valkey say whether a call is allowed without making it, but not why it is not.
local function may(call)
  if redis.acl_check_cmd and redis.acl_check_cmd(unpack(call)) then
    return true
  end
  local answer = redis.pcall(unpack(call))
  local refusal = type(answer) == 'table' and answer.err or ''
  if refusal:find('permissions to run the', 1, true) or refusal:find('run this command', 1, true) then
    missing[#missing + 1] = call[1]
    return false
  end
  return not refusal:find('channel', 1, true)
end

for _, call in ipairs(calls) do
  may(call)
end
for _, before in ipairs({'redisson_lock__channel:', 'redisson_rwlock:', 'tower_lock_enter:', 'tower_lock_turn:'}) do
  local channel, found = before .. '{' .. name .. '}', #missing
  -- In a Cluster, the other command may publish releases.
  if not (redis.acl_check_cmd and redis.acl_check_cmd('SPUBLISH', channel, ''))
    and not may({'PUBLISH', channel, ''}) then
    if #missing > found then
      break
    end
    missing[#missing + 1] = '&' .. before .. '*'
  end
end
-- This has an effect on any key, so it is tried only where it can be undone.
if may({'DEL', name}) then
  if may({'LPUSH', name, 'v'}) then
    redis.pcall('DEL', name)
  end
  if may({'RPUSH', name, 'v'}) then
    redis.pcall('DEL', name)
  end
end
return missing
