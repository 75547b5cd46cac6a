-- Goes before a script that changes nothing, when its answer shall be acknowledged by replicas: writes something for them
-- to acknowledge. They may have acknowledged all else before they were cut off.
-- KEYS  the last: ours, of no other use
redis.call('SET', KEYS[#KEYS], '', 'PX', 1000)
