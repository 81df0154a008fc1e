-- Proves a hold, refreshes it, and records how often it is entered. The count
-- is absolute, and a message that is older than the last one changes nothing.
--
-- KEYS  S R
-- ARGV  keep ms, id, ttl ms (0: not to be extended), entries, sequence
-- Reply OK µs expiry, or LOST µs
local S, R = KEYS[1], KEYS[2]
local keep, id, ttl = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local entries, sequence = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local s = redis.call('HMGET', S, 'o', 'e', 's')
if s[1] == id then
  local e = tonumber(s[2])
  if e <= now then
    return {'LOST', us}
  end
  e = math.max(e, now + ttl)
  redis.call('PEXPIRE', S, string.format('%.0f', e - now + keep))
  if sequence > tonumber(s[3] or 0) then
    redis.call('HSET', S, 'e', string.format('%.0f', e), 'n', entries, 's', sequence)
  else
    redis.call('HSET', S, 'e', string.format('%.0f', e))
  end
  return {'OK', us, e}
end

local e = tonumber(redis.call('ZSCORE', R, id) or 0)
if e <= now then
  return {'LOST', us}
end
e = math.max(e, now + ttl)
local last = math.max(e, tonumber(redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2]))
redis.call('PEXPIRE', S, string.format('%.0f', last - now + keep))
redis.call('PEXPIRE', R, string.format('%.0f', last - now + keep))
redis.call('ZADD', R, string.format('%.0f', e), id)
return {'OK', us, e}
