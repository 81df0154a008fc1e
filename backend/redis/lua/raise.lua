-- Raises the token of a lock whose holder has been given a greater one by
-- other servers. A hold that expired unnoticed is none.
--
-- KEYS  S R
-- ARGV  id, token
-- Reply OK or LOST, then µs
local S, R, id, token = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
-- include now
local s = redis.call('HMGET', S, 'o', 'e', 't')
local till = s[1] == id and s[2] or redis.call('ZSCORE', R, id)
if tonumber(till or 0) <= now then
  return {'LOST', us}
end
if token > tonumber(s[3] or 0) then
  redis.call('HSET', S, 't', string.format('%.0f', token))
end
return {'OK', us}
