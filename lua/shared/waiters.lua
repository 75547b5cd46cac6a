-- Attempts that wait: a sorted set, hold id -> the server's ms until which it counts as waiting. The set expires with
-- whoever asked last, so an uncontended script need not look inside.
local function join(set, id, liveness, now)
  redis.call('ZADD', set, now + liveness, id)
  redis.call('PEXPIRE', set, liveness)
end

-- How many ms from now somebody in the set still counts as waiting; nil if nobody does.
local function waiting(set, now)
  redis.call('ZREMRANGEBYSCORE', set, '-inf', now)
  local last = redis.call('ZREVRANGE', set, 0, 0, 'WITHSCORES')
  return last[2] and last[2] - now
end
