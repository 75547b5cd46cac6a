-- Lists waiters: a hundred at most, and one more if there are more.
-- Needs    admin/holders.lua

-- The living ids of a set. They have no order among themselves, and are shown by name: what is shown changes only with them.
local function alive_in(set, now)
  local ids = redis.call('ZRANGEBYSCORE', set, '(' .. now, '+inf', 'LIMIT', 0, MOST + 1)
  table.sort(ids)
  return ids
end

-- The living ids in line, the first in front.
local function in_order(line, alive, now)
  local ids = redis.call('ZRANGE', line, 0, MOST)
  local lives, living = #ids > 0 and redis.call('ZMSCORE', alive, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if tonumber(lives[i] or 0) > now then
      living[#living + 1] = id
    end
  end
  return living
end
