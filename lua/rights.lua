-- Says which commands of the other scripts the user may not run. Nothing that it does has an effect that stays: what
-- would write is asked for in a way that fails after the rights were looked at. A key or channel that the user may not
-- touch is no matter.
-- ARGV     1 a name that nobody else uses, for a key and a channel
-- Returns  the commands
local name = ARGV[1]
local calls = {
  {'EXISTS', name},
  {'GET', name},
  {'HDEL', name, 'f'},
  {'HEXISTS', name, 'f'},
  {'HGET', name, 'f'},
  {'HGETALL', name},
  {'HLEN', name},
  {'HMGET', name, 'f'},
  {'HSET', name, 'f', 'v', 'a field without a value'},
  {'LINDEX', name, 0},
  {'LREM', name, 0, 'v'},
  {'PEXPIRE', name, 1},
  {'PTTL', name},
  {'RENAME', name, name},
  {'SET', name, 'v', 'NX', 'XX'},
  {'TIME'},
  {'ZADD', name, 'no number', 'm'},
  {'ZREM', name, 'm'},
  {'ZREMRANGEBYSCORE', name, 0, 0},
  {'ZREVRANGE', name, 0, 0},
  {'ZSCORE', name, 'm'},
}

local missing = {}
local function may(call)
  -- Redis 7, Valkey: nothing is done, but a key that may not be touched is no better than a command.
  if redis.acl_check_cmd and redis.acl_check_cmd(unpack(call)) then
    return true
  end
  local answer = redis.pcall(unpack(call))
  local refusal = type(answer) == 'table' and answer.err or ''
  if refusal:find('permissions to run the', 1, true) or refusal:find('run this command', 1, true) then
    missing[#missing + 1] = call[1]
    return false
  end
  return true
end

for _, call in ipairs(calls) do
  may(call)
end
-- In a Cluster, releases may be told by the other command.
if not (redis.acl_check_cmd and redis.acl_check_cmd('SPUBLISH', name, '')) then
  may({'PUBLISH', name, ''})
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
