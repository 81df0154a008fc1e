-- Lets a hold go on until a given time and end by itself then. It is kept under another
-- id, so that nothing about it that may be under way prolongs or ends it.
--
-- KEYS  S R Q A X
-- ARGV  id, ms from now, the last token the holder has used, tomb (1: refuse this id
--       from now on, an acquire of it may be under way)
-- Reply OK watch or LOST watch
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, used = ARGV[1], tonumber(ARGV[3])
local left = id .. '!'
-- include bounds
-- include wake
-- include now
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
-- include state
-- include room
local status, changed = 'LOST', false
if o == id and e > now then
  status, o, e = 'OK', left, now + ARGV[2]
  last = e
  redis.call('HSET', S, 'o', left, 'e', e)
  if used > t then
    t = used
    redis.call('HSET', S, 't', t)
  end
elseif o == left and e > now then
  status = 'OK' -- it was asked twice
elseif readers > 0 and tonumber(redis.call('ZSCORE', R, id) or 0) > now then
  status, changed = 'OK', true
  last = now + ARGV[2]
  redis.call('ZREM', R, id)
  redis.call('ZADD', R, last, left)
elseif readers > 0 and tonumber(redis.call('ZSCORE', R, left) or 0) > now then
  status = 'OK'
end

-- include settle

joined = joined or changed
local refusing = ARGV[4] == '1'
-- include finish
-- include watch

return {status, watch}
