-- Gives a hash that was just written its life. Nothing is left without one: if the user may write but not expire, the
-- hash goes again.
local function expire(name, ms)
  local done = redis.pcall('PEXPIRE', name, ms)
  if type(done) == 'table' then
    redis.call('DEL', name)
    error(done.err)
  end
end
