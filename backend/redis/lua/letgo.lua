-- What release does for one lock.
--
-- Uses  S R Q A X, id, refusing: whether to refuse that id from now on, used: the last
--       token its holder has used, or nil; s, the reply to HMGET S o b d t e a l
-- Sets  status OK, LEFT or NOT_HELD; watch
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
if status == 'NOT_HELD' then
  -- include room
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
