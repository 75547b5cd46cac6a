-- The permits of a key, as Redisson's RPermitExpirableSemaphore keeps them:
--   a string: how many permits are free. It is negative while more are held than a lowered limit allows;
--   a sorted set: permit -> the ms at which it lapses. Ours are hold ids by the server's clock, Redisson's are 16 random
--   bytes by the clock of its client; one that never lapses has the score 922337203685477;
--   a channel: the number of free permits, whenever permits have come free.
-- The limit is the number of free permits and that of the members of the set. A string that does not expire was made by Redisson
-- or by permit/set.lua: its limit counts, whatever an attempt names. One that expires was made by an attempt of ours, which left
-- its limit beside it (`tower_lock_limit`), and binds only while permits are held. If the limit is another one now, Redisson has
-- changed it, and it counts. A string that expires and is neither is data of the application.
-- Needs    now.lua

-- How many permits are free (nil: the key does not say, false: it is no number) after those that have lapsed are given back;
-- how many have lapsed.
local function take_stock(counter, held, now)
  local free = redis.call('GET', counter)
  if free and not free:find('^%-?%d+$') then
    return false
  end
  -- On a full server, Redis refuses no write of a script that has written before. So nothing is removed in vain.
  local soonest = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')[2]
  local lapsed = tonumber(soonest or now + 1) <= now and redis.call('ZREMRANGEBYSCORE', held, '-inf', now) or 0
  if free and lapsed > 0 then
    redis.call('SET', counter, free + lapsed, 'KEEPTTL')
  end
  return free and free + lapsed or nil, lapsed
end

-- For how many ms at least no permit is free, when `free` of them are, which is none or fewer.
local function next_free(held, free, now)
  local at = math.abs(free)
  local next = redis.call('ZRANGE', held, at, at, 'WITHSCORES')[2]
  return next and next - now or 1000
end

-- Whether Redisson holds one of the permits that lapse first or last.
local function are_redissons(held)
  for _, place in ipairs({{0, 4}, {-5, -1}}) do
    for _, id in ipairs(redis.call('ZRANGE', held, place[1], place[2])) do
      if #id == 16 then
        return true
      end
    end
  end
  return false
end
