-- Takes a lock away from who holds it under a token, and lets in who is next. Whoever has
-- held it hears of that by a message, or as it renews.
--
-- KEYS  S R Q A X
-- ARGV  token
-- Reply how many holds were ended, watch, 1 if there are more readers to be ended
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- include limits
-- include publish
-- include now
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
-- include status
-- include firstwrite
local ended, remaining = {}, 0
if t > 0 and tonumber(ARGV[1]) == t then
  if o and e > now then
    -- Tokens below the end of the lease may have been handed on by its holder.
    ended, t = {o}, math.max(t, e * 1000 - 1)
    redis.call('HDEL', S, 'o', 'e', 'n', 's')
    redis.call('HSET', S, 'x', o, 't', string.format('%.0f', t))
    o, last = false, now
  elseif not o and readers > 0 then
    ended = redis.call('ZRANGEBYSCORE', R, string.format('(%.0f', now), '+inf', 'LIMIT', 0, 1000)
    for _, id in ipairs(ended) do
      readers = readers - redis.call('ZREM', R, id)
    end
    remaining = #ended == 1000 and readers > 0 and 1 or 0
  end
end
for _, head in ipairs(ended) do
  redis.call('ZADD', X, now + refused, head)
  local hint, client = 'broken ', string.match(head, ':([^:]*)')
  -- include hint
end

-- include handover

local id, refusing = ended[1], #ended > 0
-- include expiries
-- include watch
return {#ended, watch, remaining}
