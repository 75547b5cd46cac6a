-- Renews the lease of a permit; a lease of 0 changes nothing. Returns whether it is held: an expired permit is gone, even
-- while it is still in the set.
-- Needs    on_hash.lua, now.lua, permit/give.lua
local function renew_permit(counter, held, id, lease)
  local now, ends = now_ms(), tonumber(on_hash('ZSCORE', held, id) or 0)
  if ends <= now then
    return false
  end
  if lease == '0' then
    return true
  end
  redis.call('ZADD', held, math.max(now + lease, ends), id)
  outlive(counter, held, now)
  return true
end
