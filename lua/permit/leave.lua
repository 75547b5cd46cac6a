-- Gives a permit back. An expired permit was gone before, but is also given back, as Redisson does.
-- keys     1 free permits, 2 permits that are held, 3 channel, 4 waiting, 5 line, 6 turn of those outside
-- args     1 hold id, 2 publish command (absent: PUBLISH)
-- Returns  0 gone before; if it ended: one more than the subscribers of Redisson's channel
-- Needs    on_hash.lua, now.lua, line.lua, outside.lua, permit/give.lua
local function leave_permit(keys, args)
  local ends = on_hash('ZSCORE', keys[2], args[1])
  if not ends or on_hash('ZREM', keys[2], args[1]) == 0 then
    return 0
  end
  local publish = args[2] or 'PUBLISH'
  local woken = give_back(keys[1], keys[3], publish, 1)
  give_outside_turn(keys[6], woken)
  call_first(keys[5], keys[4], publish)
  return tonumber(ends) > now_ms() and 1 + woken or 0
end
