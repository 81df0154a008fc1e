-- What acquire does, with the token of a new grant no less than least.
--
-- Uses  KEYS and the first ARGV of acquire, limits, publish, us now
local id, ttl, mode, order = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local shared = string.byte(id) == 114
local expiry = now + ttl
local plain, granted = not shared and mode ~= 'p', nil
-- include grantfree
if granted then
  return granted
end

-- include status
-- include handover
if more == 1 and waiting > 0 then -- who asked may have the lock now: others go on
  -- include hintnext
end

local place = false
if waiting > 0 and (mode ~= 'w' or not o) then
  place = redis.call('ZSCORE', Q, id)
end
local mine = readers > 0 and redis.call('ZSCORE', R, id)
-- Nobody in the queue can be let in now, so whoever comes before its head may
-- be: one who comes back with an old rank.
local open = not o and not place and (shared or readers == 0)
if open and waiting > 0 then
  open = order and order <= tonumber(redis.call('ZRANGE', Q, 0, 0, 'WITHSCORES')[2])
end

-- Whoever waits with a vote leaves a server that has restarted, also while the lock is held: it
-- would not be granted here.
local rejoin, rest = mode == 'p' and place and string.match(id, '^[wr]%d+p?v(%d+)'), 0
if rejoin then
  rest = missingOf(rejoin)
end

local reply
if o == id or mine then
  -- It is written again: WAIT says nothing of what its own connection has not written.
  -- include firstwrite
  if mine and t == 0 then -- the key with the token is gone, as where a server evicts keys
    t = math.max(1, least)
  end
  redis.call('HSET', S, 't', t)
  reply = {'GRANTED', us, t, mine and tonumber(mine) or e, waiting}
elseif (busy == '2' or busy == '3') and redis.call('ZSCORE', X, id) then
  reply = {'DEAD', us}
elseif mode == 'p' and not place then
  -- A replica must not say so: see renew.
  -- include firstwrite
  reply = {'GONE', us}
elseif rest > 0 then
  redis.call('ZREM', Q, id)
  redis.call('ZREM', A, id)
  waiting = waiting - 1
  reply = {'NOT_READY', us, rest}
elseif open then
  if not shared or readers == 0 or t == 0 then
    t = math.max(t + 1, least)
    redis.call('HSET', S, 't', t)
  end
  if shared then
    redis.call('ZADD', R, expiry, id)
    readers, joined = readers + 1, true
  else
    redis.call('HSET', S, 'o', id, 'n', 1, 'e', expiry)
  end
  last = math.max(last, expiry)
  reply = {'GRANTED', us, t, expiry, waiting}
elseif mode == 't' and not place then
  reply = {'HELD', us, shared and readers > 0 and 1 or 0}
else
  local added = 0
  if not place then
    place = order or math.max(us, rank + 1)
    local P = string.format('%.0f', place)
    added = redis.call('ZADD', Q, 'NX', P, id)
    if added == 1 then
      waiting = waiting + 1
      if place > rank then
        redis.call('HSET', S, 'l', P)
      end
    else
      place = redis.call('ZSCORE', Q, id)
    end
  end
  if mode == 'p' then -- it prolongs the wait
    -- include firstwrite
  end
  local poll = math.min(math.max(waiting * 1000, 5000), 120000)
  local alive = now + 3 * poll
  local unknown = redis.call('ZADD', A, string.format('%.0f', alive), id) == 1
  local first = added == 1 and waiting == 1
  if first or alive < due then
    redis.call('HSET', S, 'a', math.min(alive, now + upkeep))
  end
  if first then
    redis.call('PEXPIRE', Q, abandoned)
    redis.call('PEXPIRE', A, abandoned)
    -- Those who have the lock hear that somebody waits. Of very many readers those hear whose
    -- leases last longest: the others renew them soon, and are told with that.
    for _, head in ipairs(o and {o} or redis.call('ZREVRANGE', R, 0, 999)) do
      local hint, client = 'contended ', string.match(head, ':([^:]*)')
      -- include hint
    end
  elseif unknown and (added == 0 or redis.call('ZCARD', A) < waiting) then -- A was evicted
    redis.call('PEXPIRE', A, abandoned)
  end
  local position = waiting - 1
  if added == 0 or order then
    position = redis.call('ZRANK', Q, id)
  end
  if position == 0 then -- nobody tells the head that a lease runs out
    -- Nobody holds it if handover had to stop just before this id.
    local rest = o and e or redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2] or now + math.max(missing, 0)
    poll = math.min(poll, rest - now + 5)
  end
  local polls, client = string.match(id, '^.%d+(p?)[^:]*:([^:]*)')
  local listens = 1
  if polls == '' then
    local counted = redis.pcall('PUBSUB', numsub, channel .. client)
    listens = counted.err and 1 or math.min(counted[2], 1)
  end
  reply = {'QUEUED', us, tonumber(place), position, poll, listens}
end

local refusing = false
-- include expiries

return reply
