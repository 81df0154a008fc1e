-- Takes locks for exclusive holds, each if it is free and little has to be known
-- to say so. Several are independent of each other.
--
-- KEYS  S of each lock
-- ARGV  of each lock: id, ttl ms
-- Reply for one lock that of acquire if it is granted, else 0: nothing has changed, and
--       acquire can tell more; for several a list of that
-- include limits
-- include now
local plain, least, replies = true, us, {}
for i = 1, #KEYS do
  local S, id, expiry = KEYS[i], ARGV[2 * i - 1], now + ARGV[2 * i]
  local granted
  -- A key of another type concerns nobody but who asks for it.
  local s = redis.pcall('HMGET', S, 'o', 'b', 'd', 't')
  -- include grantfree
  replies[i] = granted or 0
end
return #KEYS > 1 and replies or replies[1]
