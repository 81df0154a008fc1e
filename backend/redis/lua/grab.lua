-- Takes locks for exclusive holds, each if it is free and little has to be known
-- to say so. Several are independent of each other.
--
-- KEYS  S of each lock
-- ARGV  of each lock: id, ttl ms,
--       and for votes also the proposed token and lead µs
-- Reply for one lock that of acquire, or of vote, if it is granted, else 0:
--       nothing has changed, and those can tell more; for several a list of that
-- include bounds
-- include now
local plain, each, replies = true, #ARGV / #KEYS, {}
for i = 1, #KEYS do
  local S, first = KEYS[i], (i - 1) * each + 1
  local id, expiry, least, proposed = ARGV[first], now + ARGV[first + 1], us, ARGV[first + 2]
  if each > 2 and proposed - us <= tonumber(ARGV[first + 3]) then
    least = math.max(us, proposed)
  end
  local granted
  -- A key of another type concerns nobody but who asks for it.
  local s = redis.pcall('HMGET', S, 'o', 'b', 'd', 't')
  -- A token says that the server has voted since it has its data.
  if s[4] then
    -- include free
  end
  replies[i] = granted or 0
end
return #KEYS > 1 and replies or replies[1]
