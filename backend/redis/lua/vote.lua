-- Acquire on one of several servers that decide together: it first asks since
-- when this one has kept its data, and a new token of a free lock is no less
-- than the one proposed.
--
-- KEYS  S R Q A X, and B: a hash with the µs at which the server was first
--       asked (since), which is lost with the data
-- ARGV  those of acquire, then rejoin ms, proposed token, lead µs
-- Reply NOT_READY µs rest     the data goes back less than rejoin ms
--       or a reply of acquire
local clock = redis.call('TIME')
local at = clock[1] * 1000000 + clock[2]
local since = tonumber(redis.call('HMGET', KEYS[6], 'since')[1] or nil)
if not since then
  redis.call('HSET', KEYS[6], 'since', string.format('%.0f', at))
  since = at
end
local rest = tonumber(ARGV[9]) - math.floor((at - since) / 1000)
if rest > 0 then
  return {'NOT_READY', at, rest}
end

local proposal = tonumber(ARGV[10])
local lock = redis.call('HMGET', KEYS[1], 'o', 't')
if not lock[1] and proposal <= at + tonumber(ARGV[11]) and redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[5]) == 0 then
  local life, kept = tonumber(ARGV[6]), tonumber(ARGV[4])
  local till = string.format('%.0f', math.floor(at / 1000) + life)
  local token = math.max((lock[2] or 0) + 1, at, proposal)
  if string.byte(ARGV[5]) == 114 then
    redis.call('HSET', KEYS[1], 't', string.format('%.0f', token))
    redis.call('ZADD', KEYS[2], till, ARGV[5])
    redis.call('PEXPIRE', KEYS[2], life + kept)
  else
    redis.call('HSET', KEYS[1], 'o', ARGV[5], 'n', 1, 'e', till, 't', string.format('%.0f', token))
  end
  redis.call('PEXPIRE', KEYS[1], life + kept)
  return {'GRANTED', at, token, tonumber(till), 0}
end

-- include acquire
