-- Proves a hold, refreshes it, and records how often it is entered. The count
-- is absolute, and a message that is older than the last one changes nothing.
--
-- KEYS  S R
-- ARGV  id, ttl ms (0: not to be extended), entries, sequence
-- Reply expiry (0: lost), µs
local S, R = KEYS[1], KEYS[2]
local id, ttl, entries, sequence = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- include limits
-- include now

local s = redis.call('HMGET', S, 'o', 'e', 's', 'd', 'b')
local exclusive, kept = s[1] == id, tonumber(s[4] or 0)
if not kept or not tonumber(s[3] or 0) then -- before anything is written
  -- include unreadable
end
local e = tonumber(exclusive and s[2] or not s[1] and redis.call('ZSCORE', R, id) or 0)
-- A replica must not say that it is lost: see renew.
-- include firstwrite
if e <= now then
  return {0, us}
end
e = math.max(e, now + ttl)
if kept - e < keep then
  kept = e + keep + slack
  redis.call('HSET', S, 'd', kept) -- S may have been lost
  redis.call('PEXPIRE', S, kept - now)
  if not exclusive then
    redis.call('PEXPIRE', R, kept - now)
  end
end
if not exclusive then
  local noted = s[5]
  -- include notereaders
  redis.call('ZADD', R, e, id)
elseif sequence > tonumber(s[3] or 0) then
  redis.call('HSET', S, 'e', e, 'n', entries, 's', sequence)
else
  redis.call('HSET', S, 'e', e)
end
return {e, us}
