-- Several calls in one script: the keys of each, one after the other; of each its mode, how many keys it has, how many arguments,
-- and these arguments. Needs the questions, or the releases, of every kind.

--# next
local keys_read, args_read = 0, 0

local function cut(list, from, count)
  local piece = {}
  for i = 1, count do
    piece[i] = list[from + i]
  end
  return piece
end

local function is_next()
  return args_read < #ARGV
end

-- The mode, the keys and the arguments of the next call.
local function next_call()
  local head = cut(ARGV, args_read, 3)
  local keys = cut(KEYS, keys_read, head[2])
  local args = cut(ARGV, args_read + 3, head[3])
  keys_read, args_read = keys_read + #keys, args_read + 3 + #args
  return head[1], keys, args
end

--# acquire
local ask = {reentrant = ask_exclusive, fair = ask_fair, read = ask_read, write = ask_write, permit = ask_permit}
-- `all`: grants all of them, or none: only after the answer to the last question. `any`: grants the first that is free.
local all, grants, asked_for, soonest = ARGV[1] == 'all', {}, 0, nil
args_read = 1
while is_next() do
  asked_for = asked_for + 1
  local mode, keys, args = next_call()
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

--# release
local leave = {reentrant = leave_exclusive, fair = leave_fair, read = leave_read, write = leave_write, permit = leave_permit}
local answers = {}
while is_next() do
  local mode, keys, args = next_call()
  answers[#answers + 1] = leave[mode](keys, args)
end
return answers
