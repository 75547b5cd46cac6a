-- Reads the keys and arguments of several calls in one script, one after the other.
-- KEYS     of each call, one after the other: the keys that the script of its mode takes
-- ARGV     of each call, one after the other: its mode, how many keys it has, how many arguments; these arguments
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
