-- Stores a record under a hold, if the hold exists; the release that follows in the same script reports whether it did.
-- KEYS the last: record; ARGV 3 `record`, 4 field of the hold, 5 the record, 6 ms for which it is kept
if ARGV[3] == 'record' and redis.pcall('HEXISTS', KEYS[1], ARGV[4]) == 1 then
  -- When memory is full, a script that has written may still allocate. So PEXPIRE comes first; it writes only what SET
  -- overwrites.
  redis.call('PEXPIRE', KEYS[#KEYS], ARGV[6])
  redis.call('SET', KEYS[#KEYS], ARGV[5], 'PX', ARGV[6])
end
