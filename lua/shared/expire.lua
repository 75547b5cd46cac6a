-- Sets the expiry of a hash that was just written. No hash is left without one: if the user may write but not expire,
-- the hash is removed.
local function expire(name, ms)
  local done = redis.pcall('PEXPIRE', name, ms)
  if type(done) == 'table' then
    redis.call('DEL', name)
    error(done.err)
  end
end
