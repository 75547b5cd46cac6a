-- Returns why no permit can be granted now, or nil and the function that grants. A refused attempt keeps its place in line.
-- keys, args  as permit/acquire.lua
-- Needs       now.lua, place.lua and what it needs, outside.lua, permit/stock.lua, permit/give.lua
local function ask_permit(keys, args)
  local counter, held, alive, line = keys[1], keys[2], keys[6], keys[7]
  local id, publish, limit, now = args[2], args[5] or 'PUBLISH', tonumber(args[4]), now_ms()
  -- There is no tombstone, and no attempt waits.
  local alone = redis.call('EXISTS', keys[4], alive, keys[8]) == 0
  if not alone and redis.call('EXISTS', keys[4]) == 1 then
    return 2
  end
  local free, lapsed = take_stock(counter, held, now)
  if free == false then
    return 5
  end
  local ends, taken, names = redis.call('ZSCORE', held, id), redis.call('ZCARD', held), false
  if not free then
    free, names = limit - taken, true
  elseif redis.call('PTTL', counter) >= 0 then
    local named = redis.call('GET', keys[5])
    if taken + lapsed == 0 and not named and free ~= limit then
      return 5
    elseif taken == 0 then
      free, names = limit, true
    elseif not ends and free + taken ~= limit and free + taken == tonumber(named or free + taken) then
      return {6, free + taken}
    end
  end

  local others, theirs, dropped
  if not (ends or alone) and args[3] ~= '0' then
    others, theirs, dropped = who_goes_first(line, alive, keys[8], id, now, free <= 0)
  elseif not (ends or alone) and free > 0 then
    others = turn_of_line(line, alive, keys[8], now)
  end
  if not ends and (free <= 0 or others or theirs) then
    local left = free <= 0 and next_free(held, free, now) or others or theirs
    if args[3] == '0' then
      return {1, left}
    end
    local listens = not others and (theirs or are_redissons(held))
    local refused = refuse_in_line(line, alive, id, args[3], publish, now, dropped, left, listens)
    if listens then -- Redisson's permits do not extend the string that keeps the limit of ours.
      outlive(counter, held, now)
    end
    return refused
  end

  return nil, function()
    if not ends then
      free = free - 1
      redis.call('SET', counter, free, unpack(names and {'PX', IDLE} or {'KEEPTTL'}))
      if names then
        redis.call('SET', keys[5], limit, 'PX', IDLE)
      end
    end
    redis.call('ZADD', held, math.max(now + args[1], tonumber(ends or 0)), id)
    outlive(counter, held, now)
    if free > 0 and lapsed > 0 then
      redis.call(publish, keys[3], free)
    end
    if not alone then
      enter(line, alive, keys[8], id, args[1], ends or args[3] ~= '0')
      if free > 0 then
        call_first(line, alive, publish)
      end
    end
    return 0
  end
end
