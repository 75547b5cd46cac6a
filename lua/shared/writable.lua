-- Ends the script if the server may have been replaced as the master: what it has of a hold may be old then. It refuses
-- writes, and still answers scripts that only read. So this renames a key to its own name: a write that changes nothing. If
-- a master refuses it for another reason, the script goes on. It comes first: a script that has written may also allocate when
-- memory is full.
-- KEYS     1 a key of a hold
-- Returns  the error of a replica, of a master that lacks replicas, or of a Cluster that is down; otherwise the script goes on
local written = redis.pcall('RENAME', KEYS[1], KEYS[1])
if written.err then
  for text, code in pairs({READONLY = 'READONLY', NOREPLICAS = 'NOREPLICAS', ['cluster is down'] = 'CLUSTERDOWN'}) do
    if written.err:find(text, 1, true) then
      return redis.error_reply(code .. ' the server refuses writes, so it confirms no hold')
    end
  end
end
