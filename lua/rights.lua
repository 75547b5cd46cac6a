-- Returns which commands of the other scripts the user may not run. It has no lasting effect: commands that write are
-- called in a form that fails after the check of the rights. A key without rights does not matter; the channels are
-- those of a lock with that name.
-- ARGV     1 a name for a key and a lock that no other client uses, 2 the command that publishes releases; without it, the server's
--          version decides
-- Returns  the commands, and the patterns of channels
-- Redis 7 has both sharded channels and the check of a call.
local name, publish = ARGV[1], ARGV[2] or redis.acl_check_cmd and 'SPUBLISH' or 'PUBLISH'
local calls = {
  {'EXISTS', name}, {'GET', name}, {'HDEL', name, 'f'}, {'HEXISTS', name, 'f'}, {'HGET', name, 'f'},
  {'HGETALL', name}, {'HLEN', name}, {'HMGET', name, 'f'}, {'HRANDFIELD', name, 1},
  {'HSET', name, 'f', 'v', 'a field without a value'}, {'LINDEX', name, 0},
  {'LREM', name, 0, 'v'}, {'PERSIST', name}, {'PEXPIRE', name, 1}, {'PTTL', name}, {'RENAME', name, name},
  {'SET', name, 'v', 'NX', 'XX'}, {'TIME'}, {'ZADD', name, 'no number', 'm'}, {'ZCARD', name},
  {'ZCOUNT', name, 0, 0}, {'ZRANGE', name, 0, 0}, {'ZREM', name, 'm'}, {'ZREMRANGEBYSCORE', name, 0, 0},
  {'ZREVRANGE', name, 0, 0}, {'ZSCORE', name, 'm'},
}

local missing = {}
-- Redis 7 and Valkey can check a call without making it, but do not name the reason of a refusal.
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
for _, before in ipairs({'redisson_lock__channel:', 'redisson_rwlock:', 'redisson_sc:', 'tower_lock_enter:',
  'tower_lock_turn:'}) do
  local channel, found = before .. '{' .. name .. '}', #missing
  if not may({publish, channel, ''}) then
    if #missing > found then
      break
    end
    missing[#missing + 1] = '&' .. before .. '*'
  end
end
-- This command has an effect on any key, so it is called only if the effect can be undone.
if may({'DEL', name}) then
  if may({'LPUSH', name, 'v'}) then
    redis.pcall('DEL', name)
  end
  if may({'RPUSH', name, 'v'}) then
    redis.pcall('DEL', name)
  end
end
return missing
