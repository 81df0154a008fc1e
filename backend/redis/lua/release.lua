-- Ends a hold or leaves the queue, and lets in who is next. A hold that is
-- still there has never been anybody else's, even if its lease is over.
--
-- KEYS  S R Q A X
-- ARGV  id, tomb (1: refuse this id from now on, an acquire of it may be under
--       way), the last token the holder has used (may be left out)
-- Reply watch, or LEFT (the queue) watch, or NOT_HELD watch
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, refusing, used = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
if s[1] == id and not s[2] and s[3] and not refusing then
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  if used and used > tonumber(s[4] or 0) then
    redis.call('HSET', S, 't', used)
  end
  return 0
end

-- include bounds
-- include wake
-- include now
-- include state
local held, status = o == id, 'NOT_HELD'
if held then
  status, o = 'OK', false -- the fields go when it is known who is next
  if used and used > t then
    t = used
  end
elseif readers > 0 and redis.call('ZREM', R, id) == 1 then
  status, readers = 'OK', readers - 1
elseif waiting > 0 and redis.call('ZREM', Q, id) == 1 then
  status, waiting = 'LEFT', waiting - 1
  redis.call('ZREM', A, id)
end

-- include settle

if held and not o then
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
end
if held and used then
  redis.call('HSET', S, 't', t)
end
if refusing then
  redis.call('ZREMRANGEBYSCORE', X, '-inf', now)
  redis.call('ZADD', X, now + refused, id)
  redis.call('PEXPIRE', X, refused)
end

-- include finish
-- include watch

if status == 'OK' then
  return watch
end
return {status, watch}
