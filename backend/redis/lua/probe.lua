-- Uses every command of the other scripts on a lock of its own, which it
-- leaves to expire at once.
--
-- KEYS  S R
-- ARGV  channel, publish command, how PUBSUB counts who listens
-- Reply the name and the error of each command that failed
local S, R, failed = KEYS[1], KEYS[2], {}
local function try(name, ...)
  local reply = redis.pcall(name, ...)
  if type(reply) == 'table' and reply.err then
    failed[#failed + 1] = string.lower(name)
    failed[#failed + 1] = reply.err
  end
end
try('TIME')
try('EXISTS', S)
try('HSET', S, 't', 1)
try('PEXPIRE', S, 1)
try('HMGET', S, 't')
try('HDEL', S, 't')
try('ZADD', R, 1, 'x')
try('PEXPIRE', R, 1)
try('ZCARD', R)
try('ZSCORE', R, 'x')
try('ZRANK', R, 'x')
try('ZRANGE', R, 0, 0)
try('ZREVRANGE', R, 0, 0)
try('ZRANGEBYSCORE', R, 0, 0)
try('ZREMRANGEBYSCORE', R, 1, 1)
try('ZREM', R, 'x')
try(ARGV[2], ARGV[1], '')
try('PUBSUB', ARGV[3], ARGV[1])
return failed
