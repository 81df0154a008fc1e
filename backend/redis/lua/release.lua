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
-- include lone

-- include bounds
-- include wake
-- include now
-- include letgo

if status == 'OK' then
  return watch
end
return {status, watch}
