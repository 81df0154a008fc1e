-- Included by every script that may let somebody in. It forgets what has
-- expired and gives the lock to the head of the queue while that can have it.
--
-- Uses    what status sets
-- Updates o e t readers waiting due last
-- Sets    more, 1 if there was more to do than one script should;
--         joined, whether there are new readers;
--         missingOf, in how many ms this server takes part again in votes with that rejoin;
--         missing, in how many ms this server may grant the lock to the head of the
--         queue, which asked it as one of several, if it may not yet: it has restarted,
--         and this queue is of what it knew before
local more, joined, missing = 0, false, 0
local function missingOf(rejoin)
  -- include since
  return rejoin - math.floor((us - since) / 1000)
end
if o and e <= now then
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  o = false
end
if readers > 0 then
  readers = readers - redis.call('ZREMRANGEBYSCORE', R, '-inf', now)
end
if waiting > 0 and due <= now then
  local silent = redis.call('ZRANGEBYSCORE', A, '-inf', now, 'LIMIT', 0, 128)
  for _, head in ipairs(silent) do
    waiting = waiting - redis.call('ZREM', Q, head)
    redis.call('ZREM', A, head)
    -- If it is the clock of this server that has gone on, its client is there, and comes back.
    local hint, client = 'poll ', string.match(head, ':([^:]*)')
    -- include hint
  end
  if #silent == 128 then
    more = 1
  elseif waiting > 0 then
    redis.call('PEXPIRE', Q, abandoned)
    redis.call('PEXPIRE', A, abandoned)
    due = math.min(redis.call('ZRANGE', A, 0, 0, 'WITHSCORES')[2] or now, now + upkeep)
    redis.call('HSET', S, 'a', due)
  end
end
local left = 128
local told = {}
while waiting > 0 and not o do
  local head = redis.call('ZRANGE', Q, 0, 0)[1]
  local kind, life, polls, rejoin, client = string.match(head, '^([wr])(%d+)(p?)v?(%d*):([^:]*)')
  if kind == 'w' and readers > 0 then
    break
  end
  if kind and rejoin ~= '' then
    missing = missingOf(rejoin)
    if missing > 0 then
      break
    end
  end
  if left == 0 then
    more = 1
    break
  end
  left = left - 1
  if kind == 'r' then -- it fails where somebody else has that key
    redis.call('ZCARD', R)
  end
  redis.call('ZREM', Q, head)
  redis.call('ZREM', A, head)
  waiting = waiting - 1
  -- A message also reaches who listens on a replica, and its reply does not count
  -- them. So no grant is sent before it is known that somebody listens here, and what
  -- was sent is granted. A refusal to count says nothing.
  local there = kind
  if kind and polls == '' then
    local counted = redis.pcall('PUBSUB', numsub, channel .. client)
    there = counted.err or counted[2] > 0
  end
  if there then
    local expiry, token = now + math.min(life, g), t
    if kind == 'w' or readers == 0 or t == 0 then
      token = math.max(t + 1, us)
    end
    local E = string.format('%.0f', expiry)
    local T = string.format('%.0f', token)
    if kind == 'w' then
      o, e = head, expiry
      redis.call('HSET', S, 'o', head, 'n', '1', 's', '0', 'e', E, 't', T)
    else
      if token ~= t then
        redis.call('HSET', S, 't', T)
      end
      redis.call('ZADD', R, E, head)
      readers, joined = readers + 1, true
    end
    t, last = token, math.max(last, expiry)
    if polls == '' then
      local sent = token == us and T or string.format('%.0f', us)
      told[#told + 1] = {channel .. client, head .. ' ' .. T .. ' ' .. sent .. ' ' .. E}
    end
  elseif kind then -- if its connection is to a master that has become a replica, it comes back
    local hint = 'poll '
    -- include hint
  end
end
-- Who is let in hears whether somebody is left who waits.
for _, message in ipairs(told) do
  redis.pcall(publish, message[1], message[2] .. (waiting > 0 and ' 1 ' or ' 0 ') .. S)
end
