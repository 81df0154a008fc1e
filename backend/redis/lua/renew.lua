-- Keeps many holds alive. A key that is not ours any more is a hold that is
-- lost, and no reason to fail the others.
--
-- KEYS  S R Q of each lock
-- ARGV  keep ms, then for each lock: id, ttl ms, and the expiry of a hold that
--       is not extended beyond it, or 0
-- Reply µs, then for each lock: expiry (0: lost) and 1 if somebody waits
local keep = tonumber(ARGV[1])
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local reply = {us}
for i = 1, #KEYS / 3 do
  local S, R, Q = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local id, ttl, till = ARGV[3 * i - 1], tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local target, expiry, contended = till > 0 and till or now + ttl, 0, 0
  local s = redis.pcall('HMGET', S, 'o', 'e')
  if s[1] == id then
    local e = tonumber(s[2])
    if e > now then
      expiry = math.max(e, target)
      redis.call('PEXPIRE', S, string.format('%.0f', expiry - now + keep))
      redis.call('HSET', S, 'e', string.format('%.0f', expiry))
    end
  elseif not s.err then
    local score = redis.pcall('ZSCORE', R, id)
    local e = type(score) == 'string' and tonumber(score) or 0
    if e > now then
      expiry = math.max(e, target)
      local last = math.max(expiry, tonumber(redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2]))
      redis.call('PEXPIRE', S, string.format('%.0f', last - now + keep))
      redis.call('PEXPIRE', R, string.format('%.0f', last - now + keep))
      redis.call('ZADD', R, string.format('%.0f', expiry), id)
    end
  end
  if expiry > 0 then
    contended = redis.call('EXISTS', Q)
  end
  reply[2 * i], reply[2 * i + 1] = expiry, contended
end
return reply
