-- Returns the holders of a key's permits and the waiters in line: a hundred of each at most. Changes nothing.
-- free     the value of the key
-- Returns  as admin/inspect.lua
-- Needs    now.lua, admin/holders.lua
local NEVER = 922337203685477

local function look_at_permits(free, counter, held, line, alive)
  if not free:find('^%-?%d+$') then
    return 3
  end
  local now, found = now_ms(), {}
  local live = redis.call('ZRANGEBYSCORE', held, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, MOST + 1)
  for i = 1, math.min(#live, 2 * MOST), 2 do
    local ends = tonumber(live[i + 1])
    found[#found + 1] = {live[i], 'permit', 1, ends == NEVER and -1 or ends - now}
  end
  local waiters = in_order(line, alive, now)
  local more = #live > 2 * MOST or #waiters > MOST
  waiters[MOST + 1] = nil
  local binds = #live > 0 or redis.call('PTTL', counter) == -1
  local limit = binds and free + redis.call('ZCARD', held) or 0
  return {found, waiters, more and 1 or 0, limit}
end
