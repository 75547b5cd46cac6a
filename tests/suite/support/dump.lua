-- Purpose: a snapshot of the whole database, in one step.
-- KEYS:    none (it reads them all; for tests only)
-- ARGV:    none
-- Returns: one {key, type, PTTL, content} per key
local read = {
  string = { 'GET' },
  hash = { 'HGETALL' },
  list = { 'LRANGE', '0', '-1' },
  set = { 'SMEMBERS' },
  zset = { 'ZRANGE', '0', '-1', 'WITHSCORES' },
}
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local command = read[kind]
  local content = ''
  if command then
    content = redis.call(command[1], key, unpack(command, 2))
  end
  found[#found + 1] = { key, kind, redis.call('PTTL', key), content }
end
return found
