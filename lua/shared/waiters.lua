-- Attempts that wait: a sorted set, hold id -> the server's ms until which it counts as waiting. The set expires with
-- the last attempt that asked, so a script without contention need not read it.
local function join(set, id, liveness, now)
  redis.call('ZADD', set, now + liveness, id)
  redis.call('PEXPIRE', set, liveness)
end

-- For how many ms an attempt in the set still counts as waiting; nil if none does.
local function waiting(set, now)
  redis.call('ZREMRANGEBYSCORE', set, '-inf', now)
  local last = redis.call('ZREVRANGE', set, 0, 0, 'WITHSCORES')
  return last[2] and last[2] - now
end
