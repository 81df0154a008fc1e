-- Keeps one hold alive while its slot moves from one node to another: a script
-- may then use no key but one that is there.
--
-- KEYS  S of an exclusive hold, or R of a shared one
-- ARGV  keep ms, id, ttl ms, and the expiry of a hold that is not extended
--       beyond it, or 0
-- Reply µs expiry (0: lost)
local key, keep, id = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local ttl, till = tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local target = till > 0 and till or now + ttl

local s = redis.pcall('HMGET', key, 'o', 'e')
if not s.err then
  local e = tonumber(s[2] or 0)
  if s[1] ~= id or e <= now then
    return {us, 0}
  end
  e = math.max(e, target)
  redis.call('PEXPIRE', key, string.format('%.0f', e - now + keep))
  redis.call('HSET', key, 'e', string.format('%.0f', e))
  return {us, e}
end

local e = tonumber(redis.call('ZSCORE', key, id) or 0)
if e <= now then
  return {us, 0}
end
e = math.max(e, target)
local last = math.max(e, tonumber(redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]))
redis.call('PEXPIRE', key, string.format('%.0f', last - now + keep))
redis.call('ZADD', key, string.format('%.0f', e), id)
return {us, e}
