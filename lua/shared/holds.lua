-- Distinguishes the holds in a lock's hash from data of the application. The field of a hold is `<client>:<number>`, where
-- the client is a UUID; Redisson adds `:<id>` in a transaction and both sides add `:write` for a writer. Its value is a
-- count.

-- How often a hold was entered; nil if the field is not a hold.
local function hold_count(field, value)
  if field:sub(1, 36):find('^[%x%-]+$') and field:find('^:%-?%d+', 37) and value:find('^[1-9]%d*$') then
    return tonumber(value)
  end
end

-- Whether a field belongs to a read-write lock without being a hold.
local function is_mode(field, value)
  return field == 'mode' and (value == 'read' or value == 'write')
end

-- Why a hash with this `mode` and `left` ms to live is not a read-write lock: a code of read/acquire.lua. A hold always
-- expires, and so does its hash.
local function why_no_lock(mode, left)
  if mode and not is_mode('mode', mode) then
    return 5
  end
  if left == -1 then
    return 4
  end
  return not mode and left ~= -2 and 3 or nil
end
