-- Reads what the fast path has not needed.
--
-- Uses s, the reply to HMGET S o b d t
-- Sets o e t   holder, end of its lease, last token
--      busy    what may be in the other keys; 1: readers or a queue, 2: refused
--              ids, 3: both, false: nothing at all
--      kept    until when the key S is sure to exist
--      due     when the queue has to be looked after
--      rank    the last one given out
--      last    the end of the longest lease granted by this script
local o, busy, kept, t = s[1], s[2], tonumber(s[3] or 0), tonumber(s[4] or 0)
local q = redis.call('HMGET', S, 'e', 'a', 'l')
local e, due, rank, last = tonumber(q[1] or 0), tonumber(q[2] or 0), tonumber(q[3] or 0), 0
local readers = 0
if not o then
  readers = redis.call('ZCARD', R)
end
local waiting = redis.call('ZCARD', Q)
