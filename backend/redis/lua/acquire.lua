-- Takes the lock, or joins its queue, or says how an earlier call stands.
--
-- KEYS  S R Q A X
-- ARGV  g ms, publish command, channel prefix, keep ms, id, ttl ms,
--       mode (w: wait, t: try, p: heartbeat of one that waits), rank or ''
-- Reply GRANTED µs token expiry waiting
--       QUEUED µs rank position waiting rest poll
--       HELD µs rest      mode t: somebody has it
--       GONE µs           mode p: not in the queue any more
--       DEAD µs           the id was released before
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, ttl, mode, rank = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
local keep = tonumber(ARGV[4])
local shared = string.byte(id) == 114
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local s = redis.call('HMGET', S, 'o', 'e', 't')
if not s[1] and mode ~= 'p' and redis.call('EXISTS', R, Q, X) == 0 then
  local expiry, token = now + ttl, math.max((s[3] or 0) + 1, us)
  if shared then
    redis.call('HSET', S, 't', string.format('%.0f', token))
    redis.call('ZADD', R, string.format('%.0f', expiry), id)
    redis.call('PEXPIRE', R, ttl + keep)
  else
    redis.call('HSET', S, 'o', id, 'n', 1, 'e', string.format('%.0f', expiry), 't', string.format('%.0f', token))
  end
  redis.call('PEXPIRE', S, ttl + keep)
  return {'GRANTED', us, token, expiry, 0}
end

local g, publish, channel = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local o, e, t = s[1], tonumber(s[2] or 0), tonumber(s[3] or 0)
local readers, waiting = redis.call('ZCARD', R), redis.call('ZCARD', Q)
local dead = redis.call('ZSCORE', X, id)
redis.call('ZCARD', A)
local expiry, order = now + ttl, tonumber(rank)

-- include settle

if o == id then
  return {'GRANTED', us, t, e, waiting}
end
local mine = readers > 0 and redis.call('ZSCORE', R, id)
if mine then
  return {'GRANTED', us, t, tonumber(mine), waiting}
end
if dead then
  return {'DEAD', us}
end

local queued = waiting > 0 and redis.call('ZSCORE', Q, id)
if not queued then
  if mode == 'p' then
    return {'GONE', us}
  end
  -- Nobody in the queue can be let in now, so whoever comes before its head
  -- may be: one who comes back with an old rank.
  local first = waiting == 0
  if not first and order then
    first = order <= tonumber(redis.call('ZRANGE', Q, 0, 0, 'WITHSCORES')[2])
  end
  if first and not o and (shared or readers == 0) then
    if not shared or readers == 0 or t == 0 then
      t = math.max(t + 1, us)
      redis.call('HSET', S, 't', string.format('%.0f', t))
    end
    if shared then
      redis.call('ZADD', R, string.format('%.0f', expiry), id)
      local last = redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2]
      redis.call('PEXPIRE', R, string.format('%.0f', last - now + keep))
      redis.call('PEXPIRE', S, string.format('%.0f', last - now + keep))
    else
      redis.call('HSET', S, 'o', id, 'n', 1, 'e', string.format('%.0f', expiry))
      redis.call('PEXPIRE', S, ttl + keep)
    end
    return {'GRANTED', us, t, expiry, waiting}
  end
end

-- include rest

if not queued and mode == 't' then
  return {'HELD', us, rest}
end
if not queued then
  queued = order
  if not queued then
    local last = redis.call('ZREVRANGE', Q, 0, 0, 'WITHSCORES')[2]
    queued = math.max(us, (last or 0) + 1)
  end
  redis.call('ZADD', Q, string.format('%.0f', queued), id)
  waiting = waiting + 1
  if waiting == 1 then
    local holders = o and {o} or redis.call('ZRANGE', R, 0, 127)
    for _, holder in ipairs(holders) do
      local client = string.match(holder, ':([^:]*)')
      redis.pcall(publish, channel .. (client or ''), 'contended ' .. holder)
    end
  end
end
local poll = math.min(math.max(waiting * 1000, 5000), 120000)
redis.call('ZADD', A, string.format('%.0f', now + 3 * poll), id)
local latest = redis.call('ZREVRANGE', A, 0, 0, 'WITHSCORES')[2]
redis.call('PEXPIRE', Q, string.format('%.0f', latest - now + 1000))
redis.call('PEXPIRE', A, string.format('%.0f', latest - now + 1000))
return {'QUEUED', us, tonumber(queued), redis.call('ZRANK', Q, id), waiting, rest, poll}
