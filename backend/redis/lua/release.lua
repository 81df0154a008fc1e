-- Ends a hold or leaves the queue, and lets in who is next.
--
-- KEYS  S R Q A X
-- ARGV  g ms, publish command, channel prefix, keep ms, id,
--       tomb (1: refuse this id from now on, an acquire of it may be under way)
-- Reply OK, EXPIRED (was over, noticed by nobody), LEFT (the queue) or
--       NOT_HELD, then µs waiting more rest
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, tomb = ARGV[5], ARGV[6] == '1'
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local s = redis.call('HMGET', S, 'o', 'e', 't')
if s[1] == id and not tomb and redis.call('EXISTS', Q) == 0 and tonumber(s[2]) > now then
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  return {'OK', us, 0, 0, 0}
end

local g, publish, channel, keep = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local o, e, t = s[1], tonumber(s[2] or 0), tonumber(s[3] or 0)
local readers, waiting = redis.call('ZCARD', R), redis.call('ZCARD', Q)
redis.call('ZCARD', A)
redis.call('ZCARD', X)
local status, score = 'NOT_HELD', redis.call('ZSCORE', R, id)
if o == id then
  status = e > now and 'OK' or 'EXPIRED'
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  o = false
elseif score then
  status = tonumber(score) > now and 'OK' or 'EXPIRED'
  readers = readers - redis.call('ZREM', R, id)
elseif redis.call('ZREM', Q, id) == 1 then
  status = 'LEFT'
  redis.call('ZREM', A, id)
  waiting = waiting - 1
end
if tomb then
  redis.call('ZREMRANGEBYSCORE', X, '-inf', string.format('%.0f', now))
  redis.call('ZADD', X, string.format('%.0f', now + 120000), id)
  redis.call('PEXPIRE', X, 120000)
end

-- include settle
-- include rest

return {status, us, waiting, more, rest}
