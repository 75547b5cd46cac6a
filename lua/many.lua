-- Several questions in one script: the keys of each, one after the other; whether all or any are wanted; of each question its mode,
-- how many keys it has, how many arguments, and these arguments. Needs the questions of every kind.

local function cut(list, from, count)
  local piece = {}
  for i = 1, count do
    piece[i] = list[from + i]
  end
  return piece
end

local ask = {reentrant = ask_exclusive, fair = ask_fair, read = ask_read, write = ask_write, permit = ask_permit}
-- `all`: grants all of them, or none: only after the answer to the last question. `any`: grants the first that is free.
local all, grants, asked_for, soonest = ARGV[1] == 'all', {}, 0, nil
local keys_read, args_read = 0, 1
while args_read < #ARGV do
  asked_for = asked_for + 1
  local mode, keys_count, args_count = unpack(ARGV, args_read + 1, args_read + 3)
  local keys, args = cut(KEYS, keys_read, keys_count), cut(ARGV, args_read + 3, args_count)
  keys_read, args_read = keys_read + #keys, args_read + 3 + #args
  local refused, grant = ask[mode](keys, args)
  if refused and (all or type(refused) ~= 'table' or refused[1] ~= 1) then
    return {asked_for, refused}
  elseif refused then
    soonest = math.min(soonest or refused[2], refused[2])
  elseif not all then
    return {asked_for, grant()}
  end
  grants[asked_for] = grant
end
if not all then
  return {0, {1, soonest}}
end
for i = 1, #grants do
  grants[i] = grants[i]()
end
return {0, grants}
