-- Looks after a lock that a client has let go of: lets in who can be, and
-- tells the head of the queue that it is the head.
--
-- KEYS  S R Q A X
-- Reply watch
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- include limits
-- include publish
-- include now
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
-- include status
-- include firstwrite
-- include handover

if waiting > 0 then
  local head = redis.call('ZRANGE', Q, 0, 0)[1]
  local hint, client = 'poll ', string.match(head, ':([^:]*)')
  -- include hint
end

local refusing = false
-- include expiries
-- include watch
if rest > g then
  watch = more -- whoever waits looks after it
end

return watch
