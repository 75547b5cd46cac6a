-- The permits of a key, as Redisson's RPermitExpirableSemaphore keeps them:
--   a string: how many permits are free. It is negative while more are held than a lowered limit allows;
--   a sorted set: permit -> the ms at which it lapses. Ours are hold ids by the server's clock, Redisson's are 16 random
--   bytes by the clock of its client; one that never lapses has the score 922337203685477;
--   a channel: the number of free permits, whenever permits have come free.
-- The limit is the number of free permits and that of the members of the set. A string that does not expire was made by Redisson
-- or by `set` below: its limit counts, whatever an attempt names. One that expires was made by an attempt of ours, which left its
-- limit beside it (`tower_lock_limit`), and binds only while permits are held. If the limit is another one now, Redisson has changed
-- it, and it counts. A string that expires and is neither is data of the application. Needs time.lua; to set a
-- limit line.lua.

--# number
-- Whether what is under the name may be a number of permits. Redisson counts them in 32 bits. A longer number is data of the
-- application, and beyond 2^53 Lua would not keep its digits.
local function is_stock(free)
  return type(free) == 'string' and #free < 12 and free:find('^%-?%d+$') ~= nil
end

--# give
-- Gives permits back. Wakes as many waiters as Redisson does, and returns the number of subscribers that got the
-- message.
local function give_back(counter, lock, publish, permits)
  local free = redis.pcall('GET', counter)
  if is_stock(free) then
    free = free + permits
    redis.call('SET', counter, free, 'KEEPTTL')
    if free > 0 then
      return redis.call(publish, 'redisson_sc:' .. lock.tag, free)
    end
  end
  return 0
end

--# keep
-- How many ms the keys are kept after the last permit has expired, for waiting clients of Redisson.
local IDLE = 86400000

-- Extends a string that expires beyond every permit, and lets the others expire with it. The set of one that does not expire is
-- kept: Redisson may have changed the string since.
local function outlive(counter, held, lock, now)
  local left = redis.call('PTTL', counter)
  if left >= 0 then
    local last = redis.call('ZREVRANGE', held, 0, 0, 'WITHSCORES')[2] or now
    local life = math.max(left, last - now + IDLE)
    for _, key in ipairs({counter, held, 'tower_lock_limit:' .. lock.tag}) do
      redis.call('PEXPIRE', key, life)
    end
  elseif left == -1 then
    redis.call('PERSIST', held)
  end
end

--# stock
-- How many permits are free (nil: the key does not say, false: it has other data) after those that have lapsed are given back;
-- how many have lapsed.
local function take_stock(counter, held, now)
  local free = redis.call('GET', counter)
  if free and not is_stock(free) then
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

--# renew
-- Renews the lease of a permit; a lease of 0 changes nothing. Returns whether it is held: an expired permit is gone, even
-- while it is still in the set.
local function renew_permit(counter, held, id, lease)
  local now, ends = now_ms(), tonumber(on_hash('ZSCORE', held, id) or 0)
  if ends <= now then
    return false
  end
  if lease ~= '0' then
    redis.call('ZADD', held, math.max(now + lease, ends), id)
    local tag = counter:find('{', 1, true) and counter or '{' .. counter .. '}'
    outlive(counter, held, {tag = tag}, now)
  end
  return true
end

--# set
-- Sets the limit of a key's permits, in place of the limits that attempts name; or leaves it to attempts again. Held
-- permits remain held: if there are more than the limit allows, none is granted until enough have ended.
local lock = state_of(KEYS[3])
local free = take_stock(KEYS[1], KEYS[2], lock.now)
if free == false then
  return 3
end
local taken = redis.call('ZCARD', KEYS[2])
if ARGV[1] == '0' then
  if redis.call('GET', 'tower_lock_limit:' .. lock.tag) == 'set' then
    redis.call('SET', 'tower_lock_limit:' .. lock.tag, (free or 0) + taken, 'PX', IDLE)
    if free then
      redis.call('PEXPIRE', KEYS[1], IDLE)
      outlive(KEYS[1], KEYS[2], lock, lock.now)
    end
  end
  return 1
end
redis.call('SET', 'tower_lock_limit:' .. lock.tag, 'set')
local left = ARGV[1] - taken
if taken == 0 and redis.call('PTTL', KEYS[1]) >= 0 then
  free = 0
end
redis.call('SET', KEYS[1], left)
redis.call('PERSIST', KEYS[2])
if left > 0 and left > (free or 0) then
  redis.call(ARGV[2], 'redisson_sc:' .. lock.tag, left)
  call_first(lock, ARGV[2])
end
return 1
