-- Keeps the entry of a process.
-- KEYS     1 entry
-- ARGV     1 the entry as JSON, 2 ms for which it is kept
-- Returns  1
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
