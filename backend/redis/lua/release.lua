-- Ends holds or leaves queues, and lets in who is next at each lock. A hold that is
-- still there has never been anybody else's, even if its lease is over.
--
-- KEYS  S R Q A X of each lock
-- ARGV  of each lock: id, tomb (1: refuse this id from now on, an acquire of it may be
--       under way), the last token the holder has used (may be left out for one lock,
--       and be '' for several)
-- Reply for one lock watch, or LEFT (the queue) watch, or NOT_HELD watch; for several a
--       list of that, with FAILED for one of which a request of its own can tell more
-- include limits
-- include publish
local function one(i)
  local first = 5 * i - 4
  local S, R, Q, A, X = KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], KEYS[first + 4]
  local id, refusing, used = ARGV[3 * i - 2], ARGV[3 * i - 1] == '1', tonumber(ARGV[3 * i] or '')
  local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
  if s[1] == id and not s[2] and s[3] and not refusing then -- nothing else is noted of the lock
    redis.call('HDEL', S, 'o', 'e', 'n', 's')
    if used and used > tonumber(s[4] or 0) then
      redis.call('HSET', S, 't', used)
    end
    return 0
  end

  -- include now
  -- include status
  local held, status = o == id, 'NOT_HELD'
  if held then
    status, o = 'OK', false -- the fields go when it is known who is next
    if used and used > t then
      t = used
    end
  elseif readers > 0 and redis.call('ZREM', R, id) == 1 then
    status, readers = 'OK', readers - 1
    redis.call('HDEL', S, '=' .. id)
  elseif waiting > 0 and redis.call('ZREM', Q, id) == 1 then
    status, waiting = 'LEFT', waiting - 1
    redis.call('ZREM', A, id)
  end
  if status == 'NOT_HELD' then
    -- include firstwrite
  end

  -- include handover

  if held and not o then
    redis.call('HDEL', S, 'o', 'e', 'n', 's')
  end
  if held and used then
    redis.call('HSET', S, 't', t)
  end
  -- include expiries
  -- include watch
  return status == 'OK' and watch or {status, watch}
end

if #KEYS == 5 then
  return one(1)
end
local replies = {}
for i = 1, #KEYS / 5 do -- one that cannot be ended is no reason to keep the others
  local ended, reply = pcall(one, i)
  replies[i] = ended and reply or {'FAILED'}
end
return replies
