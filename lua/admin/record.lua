-- Returns the size of a record, and its time to live. Changes nothing.
-- KEYS     1 record
-- Returns  {size in bytes, ms left (-1: for ever, -2: there is none)}
return {redis.call('STRLEN', KEYS[1]), redis.call('PTTL', KEYS[1])}
