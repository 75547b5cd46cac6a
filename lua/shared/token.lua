-- Issues the next fencing token and reserves those that follow it. The token is never below the server's time in
-- microseconds, so tokens rise even if the counter was lost. Reserved tokens may be ahead of that time: the counter is
-- kept at least until the time has passed them. A counter that never expires, as one of Redisson's, remains so.
-- Lua counts exactly up to here.
local LAST_TOKEN = 9007199254740991

local function next_token(counter, reserve, retention)
  local last = tonumber(redis.call('GET', counter) or 0)
  if not last then
    error('WRONGTYPE the fencing counter is not a number')
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local token = math.max(last + 1, now)
  if token + reserve > LAST_TOKEN then
    error('WRONGTYPE the fencing counter has reached 2^53: a further token would equal the last one')
  end
  local value = string.format('%.0f', token + reserve)
  if retention == '0' or redis.call('PTTL', counter) == -1 then
    redis.call('SET', counter, value)
  else
    local ahead = math.ceil((token + reserve - now) / 1000) + 1
    redis.call('SET', counter, value, 'PX', string.format('%.0f', math.max(retention, ahead)))
  end
  return token
end
