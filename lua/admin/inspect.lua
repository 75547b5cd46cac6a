-- Says who holds a lock, and who waits for it. Changes nothing.
-- KEYS     1 lock hash, 2 fair queue, 3 fair timeouts, 4 alive, 5 passes, 6 waiting writers, 7 waiting readers
-- ARGV     1 prefix of all reader timeouts
-- Returns  {holders: {id, 'exclusive', 'read' or 'write', count, ms left (-1: for ever)} each; ids of waiters};
--          3 not a lock
-- Needs    now.lua, admin/holders.lua
local now, fields, kind = now_ms(), holders(KEYS[1])
if not kind then
  return 3
end

local held, left = {}, redis.call('PTTL', KEYS[1])
for _, entry in ipairs(fields) do
  local field, count = entry[1], entry[2]
  local writer = field:match('^(.*):write$')
  if kind == 'exclusive' or writer then
    held[#held + 1] = {writer or field, writer and 'write' or kind, count, left}
  else
    local lives = 0
    for i = 1, count do
      lives = math.max(lives, redis.call('PTTL', reader_timeout(ARGV[1], field, i)))
    end
    -- Without a timeout key it has lapsed.
    if lives > 0 then
      held[#held + 1] = {field, 'read', count, lives}
    end
  end
end

local waiters, seen = {}, {}
local function wait(id)
  if not seen[id] then
    seen[id] = true
    waiters[#waiters + 1] = id
  end
end
for _, id in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local blocks, lives = redis.call('ZSCORE', KEYS[3], id), redis.call('ZSCORE', KEYS[4], id)
  if tonumber(lives or blocks or now + 1) > now then
    wait(id)
  end
end
for set = 5, 7 do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[set], '(' .. now, '+inf')) do
    wait(id)
  end
end
return {held, waiters}
