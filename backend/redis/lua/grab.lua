-- Takes a lock for an exclusive hold if it is free and little has to be known
-- to say so.
--
-- KEYS  S
-- ARGV  id, ttl ms
--       for a vote also the proposed token and lead µs
-- Reply as of acquire, or of vote, if the lock is granted, else 0: nothing has
--       changed, and those can tell more
local S, id, plain = KEYS[1], ARGV[1], true
-- include bounds
-- include now
local least, expiry = us, now + ARGV[2]
if ARGV[3] and ARGV[3] - us <= tonumber(ARGV[4]) then
  least = math.max(us, ARGV[3])
end
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't')
-- A token says that the server has voted since it has its data.
if not s[4] then
  return 0
end
-- include free
return 0
