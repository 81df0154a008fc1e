-- Takes a lock away from who holds it under a token, and lets in who is next. Whoever has
-- held it hears of that by a message, or as it renews. A client may have handed its hold on
-- since: any token under which it can have done so is that of the hold.
--
-- KEYS  S R Q A X
-- ARGV  token
-- Reply how many holds were ended, watch, 1 if there are more readers to be ended
-- include lock
-- include status
-- include firstwrite
local ended, remaining = {}, 0
local token = tonumber(ARGV[1])
-- Tokens below the end of the lease may have been handed on by its holder. Holds of a quorum
-- are not handed on.
local greatest = t
if o and not string.find(o, '^[wr]%d+p?v') then
  greatest = math.max(t, e * 1000 - 1)
end
if o and e > now and t > 0 and token >= t and token <= greatest then
  if waiting > 0 then -- handover may let readers in, and fails where somebody else has that key
    redis.call('ZCARD', R)
  end
  ended = {o}
  t = greatest
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  local before = redis.call('HMGET', S, 'x')[1]
  local broken = before and string.sub(o .. ' ' .. before, 1, 1000) or o -- the last of them
  redis.call('HSET', S, 'x', broken, 't', string.format('%.0f', t))
  o, last = false, now
elseif not o and readers > 0 then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', R, string.format('(%.0f', now), '+inf')) do
    local field = '=' .. string.match(id, '^[^!]*') -- see token
    if tonumber(redis.call('HMGET', S, field)[1] or t) == token and token > 0 then
      if #ended == 1000 then
        remaining = 1
        break
      end
      ended[#ended + 1] = id
      readers = readers - redis.call('ZREM', R, id)
      redis.call('HDEL', S, field)
    end
  end
  if #ended > 0 and remaining == 0 and token == t then
    t = t + 1 -- whoever joins readers that are left is not given what was broken
    redis.call('HSET', S, 't', string.format('%.0f', t))
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
