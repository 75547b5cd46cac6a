-- Lists holders and waiters: a hundred of each at most, and changes nothing. Needs time.lua, hash.lua, stock.lua.

--# holders
local MOST = 100

-- Some holds of the lock's hash, as `{field, count}`; the kind of lock, none if the hash is not a lock; whether there are more.
local function holders(name)
  local left = redis.call('HLEN', name)
  local fields, mode = {}, nil
  if left <= MOST + 1 then
    fields = redis.call('HGETALL', name)
  else
    fields = redis.call('HRANDFIELD', name, MOST, 'WITHVALUES')
    mode = redis.call('HGET', name, 'mode')
  end
  local found = {}
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    local count = hold_count(field, value)
    if field == 'mode' then
      mode = value
    elseif count then
      found[#found + 1] = {field, count}
    else
      return found, nil
    end
  end
  local kind = not mode and 'exclusive' or is_mode('mode', mode) and mode or nil
  return found, kind, left > MOST + 1
end

--# waiters
-- The living ids of a set. They have no order among themselves, and are shown by name: what is shown changes only with them.
local function alive_in(lock, kind)
  local ids = redis.call('ZRANGEBYSCORE', 'tower_lock_' .. kind .. ':' .. lock.tag, '(' .. lock.v, '+inf', 'LIMIT', 0, MOST + 1)
  table.sort(ids)
  return ids
end

-- The living ids in line, the first in front.
local function in_order(lock)
  local ids = redis.call('ZRANGE', 'tower_lock_line:' .. lock.tag, 0, MOST)
  local lives, living = #ids > 0 and redis.call('ZMSCORE', 'tower_lock_writers:' .. lock.tag, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if is_live(lock, lives[i]) then
      living[#living + 1] = id
    end
  end
  return living
end

--# permits
-- Returns the holders of a key's permits, `free` of which are free, and the waiters in line.
local NEVER = 922337203685477

local function look_at_permits(free, counter, held, lock)
  if not is_stock(free) then
    return 3
  end
  local found = {}
  local live = redis.call('ZRANGEBYSCORE', held, '(' .. lock.now, '+inf', 'WITHSCORES', 'LIMIT', 0, MOST + 1)
  for i = 1, math.min(#live, 2 * MOST), 2 do
    local ends = tonumber(live[i + 1])
    found[#found + 1] = {live[i], 'permit', 1, ends == NEVER and -1 or ends - lock.now}
  end
  local waiters = in_order(lock)
  local more = #live > 2 * MOST or #waiters > MOST
  waiters[MOST + 1] = nil
  local binds = #live > 0 or redis.call('PTTL', counter) == -1
  local limit = binds and free + redis.call('ZCARD', held) or 0
  return {found, waiters, more and 1 or 0, limit}
end

--# inspect
local free, lock = redis.pcall('GET', KEYS[1]), state_of(KEYS[2])
if type(free) == 'string' then
  return look_at_permits(free, KEYS[1], KEYS[3], lock)
end
local found, kind, more = holders(KEYS[1])
if not kind then
  return 3
end

local held, left, looks = {}, redis.call('PTTL', KEYS[1]), MOST
for _, hold in ipairs(found) do
  local field, count, timeouts, lives = hold[1], hold[2], {}, left
  local writer = field:gsub(':write', '', 1)
  if kind ~= 'exclusive' and writer == field then
    add_timeouts(timeouts, lock.tag, field, count)
    if looks >= #timeouts and count <= NESTED then
      lives = 0
      for _, timeout in ipairs(timeouts) do
        lives = math.max(lives, redis.call('PTTL', timeout))
      end
      looks = looks - #timeouts
    end
  end
  -- A reader without a timeout key has expired.
  if lives ~= 0 then
    local mode = kind == 'exclusive' and kind or writer == field and 'read' or 'write'
    held[#held + 1] = {writer, mode, count, lives}
  end
end

local waiters, seen = {}, {}
local function wait(ids)
  for _, id in ipairs(ids) do
    more = more or #waiters == MOST and not seen[id]
    if #waiters < MOST and not seen[id] then
      seen[id] = true
      waiters[#waiters + 1] = id
    end
  end
end
local queue = redis.call('LRANGE', 'redisson_lock_queue:' .. lock.tag, 0, MOST)
if #queue > 0 then
  local blocks = redis.call('ZMSCORE', 'redisson_lock_timeout:' .. lock.tag, unpack(queue))
  local lives = redis.call('ZMSCORE', 'tower_lock_alive:' .. lock.tag, unpack(queue))
  for i, id in ipairs(queue) do
    if is_live(lock, lives[i]) or not lives[i] and tonumber(blocks[i] or lock.now + 1) > lock.now then
      wait({id})
    end
  end
end
for _, ids in ipairs({alive_in(lock, 'pass'), in_order(lock), alive_in(lock, 'writers'), alive_in(lock, 'readers')}) do
  wait(ids)
end
return {held, waiters, more and 1 or 0, 0}
