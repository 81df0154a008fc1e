-- Turns an exclusive hold into a shared one, token and all, and lets in the
-- readers that are next.
--
-- KEYS  S R Q A X
-- ARGV  id, ttl ms (0: not to be extended), the last token the holder has used
-- Reply OK watch or LOST watch
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, ttl, used = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- include bounds
-- include wake
-- include now
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
-- include state
-- include room
local status, changed = 'LOST', o == id and e > now
if changed then
  status, o, readers = 'OK', false, 1
  last = math.max(e, now + ttl)
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  redis.call('ZADD', R, last, id)
  if used > t then
    t = used
    redis.call('HSET', S, 't', t)
  end
elseif readers > 0 and tonumber(redis.call('ZSCORE', R, id) or 0) > now then
  status = 'OK'
end

-- include settle

joined = joined or changed
local refusing = false
-- include finish
-- include watch

return {status, watch}
