-- Grants a lock that is free to an exclusive hold, if S alone can say that it
-- is: nothing is noted there, and it is kept for long enough.
--
-- Uses  s, the reply to HMGET S o b d t; S us now expiry id; plain: whether such a
--       hold is asked for; least: what the token is no less than.
-- Sets  granted: the reply. It is the token if that says all.
local till, token = tonumber(s[3] or 0), tonumber(s[4] or 0)
if plain and not s[1] and not s[2] and till and token and till - expiry >= keep and
    till < 2^53 and math.abs(token) < 2^53 then
  token = math.max(token + 1, least)
  redis.call('HSET', S, 'o', id, 'n', '1',
    'e', string.format('%.0f', expiry),
    't', string.format('%.0f', token))
  granted = token == least and token or {'GRANTED', us, token, expiry, 0}
end
