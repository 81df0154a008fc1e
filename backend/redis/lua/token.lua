-- Has a hold be known by a token that other servers have given it. A hold that expired
-- unnoticed is none.
--
-- An exclusive hold is known by the last token of the lock, t, and so are readers, but for
-- those of which S says otherwise: =id is the token of that reader, also when it is
-- expiring.
--
-- KEYS  S R
-- ARGV  id, token, raise: later tokens exceed it, and a token that is not greater than that
--       of the hold changes nothing; or lower: the hold's own was greater
-- Reply OK or LOST, then µs
local S, R, id, token = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
-- include now
local s = redis.call('HMGET', S, 'o', 'e', 't', '=' .. id)
local exclusive = s[1] == id
local till = exclusive and s[2] or redis.call('ZSCORE', R, id)
if tonumber(till or 0) <= now then
  return {'LOST', us}
end
local t = tonumber(s[3] or 0)
local known = tonumber(s[4] or t)
if token == known or token < known and ARGV[3] == 'raise' then
  return {'OK', us}
end
local T = string.format('%.0f', token)
if exclusive then
  redis.call('HSET', S, 't', T)
elseif token > t then
  for _, other in ipairs(redis.call('ZRANGE', R, 0, -1)) do
    local field = '=' .. string.match(other, '^[^!]*')
    if not redis.call('HMGET', S, field)[1] then
      redis.call('HSET', S, field, s[3] or 0)
    end
  end
  redis.call('HSET', S, 't', T)
  redis.call('HDEL', S, '=' .. id)
else
  redis.call('HSET', S, '=' .. id, T)
end
return {'OK', us}
