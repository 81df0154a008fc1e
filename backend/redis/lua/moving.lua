-- Keeps one hold alive while its slot moves from one node to another: a script
-- may then use no key but one that is there.
--
-- KEYS  S of an exclusive hold, or R of a shared one
-- ARGV  ttl ms, or the negative of an expiry beyond which the hold is not
--       extended; id
-- Reply µs expiry (0: lost)
local key, id = KEYS[1], ARGV[2]
-- include bounds
-- include now
local target = tonumber(ARGV[1])
target = target < 0 and -target or now + target

local s = redis.pcall('HMGET', key, 'o', 'e', 'd')
if not s.err then
  local e = tonumber(s[2] or 0)
  if s[1] ~= id or e <= now then
    return {us, 0}
  end
  e = math.max(e, target)
  if (s[3] or 0) - e < keep then
    local kept = e + keep + slack
    redis.call('PEXPIRE', key, kept - now)
    redis.call('HSET', key, 'd', kept)
  end
  redis.call('HSET', key, 'e', e)
  return {us, e}
end

local e = tonumber(redis.call('ZSCORE', key, id) or 0)
if e <= now then
  return {us, 0}
end
e = math.max(e, target)
local last = math.max(e, tonumber(redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]))
redis.call('PEXPIRE', key, last - now + keep + slack)
redis.call('ZADD', key, e, id)
return {us, e}
