-- Takes a lock for an exclusive hold if it is free and little has to be known
-- to say so.
--
-- KEYS  S
-- ARGV  id, ttl ms
-- Reply as of acquire if the lock is granted, else 0: nothing has changed, and
--       acquire can tell more
local S, id, plain = KEYS[1], ARGV[1], true
-- include bounds
-- include now
local least, expiry = us, now + ARGV[2]
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't')
-- include free
return 0
