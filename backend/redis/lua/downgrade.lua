-- Turns an exclusive hold into a shared one, token and all, and lets in the
-- readers that are next.
--
-- KEYS  S R Q A
-- ARGV  g ms, publish command, channel prefix, keep ms, id,
--       ttl ms (0: not to be extended)
-- Reply OK or LOST, then µs waiting more rest
local S, R, Q, A = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, ttl = ARGV[5], tonumber(ARGV[6])
local g, publish, channel, keep = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local s = redis.call('HMGET', S, 'o', 'e', 't')
local o, e, t = s[1], tonumber(s[2] or 0), tonumber(s[3] or 0)
local readers, waiting = redis.call('ZCARD', R), redis.call('ZCARD', Q)
redis.call('ZCARD', A)
local status = 'LOST'
if o == id and e > now then
  local expiry = math.max(e, now + ttl)
  status, o, readers = 'OK', false, 1
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  redis.call('ZADD', R, string.format('%.0f', expiry), id)
  redis.call('PEXPIRE', R, string.format('%.0f', expiry - now + keep))
  redis.call('PEXPIRE', S, string.format('%.0f', expiry - now + keep))
elseif tonumber(redis.call('ZSCORE', R, id) or 0) > now then
  status = 'OK'
end

-- include settle
-- include rest

return {status, us, waiting, more, rest}
