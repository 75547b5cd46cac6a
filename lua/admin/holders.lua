-- Who is in the lock's hash: the fields of Redisson's clients and ours, each with its count, and what kind of lock that
-- makes it; no kind if the hash is no lock. The fields of a lock are `<client>:<number>`, those of a writer
-- `<client>:<number>:write`, beside a `mode` if it is a read-write lock.
local function holders(name)
  local fields, found, mode = redis.call('HGETALL', name), {}, nil
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'mode' and (value == 'read' or value == 'write') then
      mode = value
    elseif field:find(':%d+$') or field:find(':%d+:write$') then
      found[#found + 1] = {field, tonumber(value:match('^%d%d?%d?%d?%d?%d?$'))}
    else
      found[#found + 1] = {}
    end
  end
  for i = 1, #found do
    if not found[i][2] then
      return found, nil
    end
  end
  return found, mode or 'exclusive'
end

-- The timeout keys of a reader (PROTOCOL 1.3), which carry the lock's hash tag.
local function reader_timeout(prefix, field, i)
  return prefix .. ':' .. field .. ':rwlock_timeout:' .. i
end
