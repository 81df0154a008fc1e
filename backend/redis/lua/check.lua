-- Looks after a lock that a client has let go of: lets in who can be, and
-- tells the head of the queue that it is the head.
--
-- KEYS  S R Q A X
-- Reply watch
-- include lock
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
