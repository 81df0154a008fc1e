-- Ends a hold or leaves the queue, and lets in who is next. A hold that is still there has
-- never been anybody else's, even if its lease is over.
--
-- KEYS  S R Q A X
-- ARGV  id, tomb (1: refuse this id from now on, an acquire of it may be under way), the
--       last token the holder has used (0, or left out: none)
-- Reply watch, or LEFT (the queue) watch, or NOT_HELD watch
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, refusing, used = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3] or 0)
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
if s[1] == id and not s[2] and s[3] and not refusing then -- nothing else is noted of the lock
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  if used > tonumber(s[4] or 0) then
    redis.call('HSET', S, 't', ARGV[3])
  end
  return 0
end

-- include limits
-- include publish
-- include now
-- include status
local held, status = o == id, 'NOT_HELD'
if held then
  status, o, t = 'OK', false, math.max(t, used) -- the fields go when it is known who is next
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
if held and used > 0 then
  redis.call('HSET', S, 't', t)
end
-- include expiries
-- include watch
return status == 'OK' and watch or {status, watch}
