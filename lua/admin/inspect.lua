-- Returns the holders of a lock and its waiters: a hundred of each at most. Changes nothing.
-- KEYS     1 lock hash, 2 fair queue, 3 fair timeouts, 4 alive, 5 passes, 6 waiting writers, 7 waiting readers,
--          8 permits that are held, 9 line
-- ARGV     1 prefix of all reader timeouts
-- Returns  {holders: {id, 'exclusive', 'read', 'write' or 'permit', count, ms left (-1: for ever)} each; ids of waiters; 1 if
--          there are more holders or waiters, else 0; the limit of permits (0: none counts)}; 3 not a lock
-- Needs    now.lua, admin/holders.lua, admin/waiters.lua, permit/look.lua
local free = redis.pcall('GET', KEYS[1])
if type(free) == 'string' then
  return look_at_permits(free, KEYS[1], KEYS[8], KEYS[9], KEYS[6])
end
local now, found, kind, more = now_ms(), holders(KEYS[1])
if not kind then
  return 3
end

local held, left, looks = {}, redis.call('PTTL', KEYS[1]), MOST
for _, hold in ipairs(found) do
  local field, count, timeouts, lives = hold[1], hold[2], {}, left
  local writer = field:gsub(':write', '', 1)
  if kind ~= 'exclusive' and writer == field then
    add_timeouts(timeouts, ARGV[1], field, count)
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
local function wait(id)
  more = more or #waiters == MOST and not seen[id]
  if #waiters < MOST and not seen[id] then
    seen[id] = true
    waiters[#waiters + 1] = id
  end
end
local queue = redis.call('LRANGE', KEYS[2], 0, MOST)
local blocks = #queue > 0 and redis.call('ZMSCORE', KEYS[3], unpack(queue))
local lives = #queue > 0 and redis.call('ZMSCORE', KEYS[4], unpack(queue))
for i, id in ipairs(queue) do
  if tonumber(lives[i] or blocks[i] or now + 1) > now then
    wait(id)
  end
end
for _, id in ipairs(in_order(KEYS[9], KEYS[6], now)) do
  wait(id)
end
for set = 5, 7 do
  for _, id in ipairs(alive_in(KEYS[set], now)) do
    wait(id)
  end
end
return {held, waiters, more and 1 or 0, 0}
