-- Says how the lock stands.
--
-- Uses s, the reply to HMGET S o b d t e a l, or to as much of that as was needed
--         before
-- Sets o e t   holder, end of its lease, last token
--      busy    what may be in the other keys; 1: readers or a queue, 2: refused
--              ids, 3: both, false: nothing at all
--      kept    until when the key S is sure to exist
--      due     when the queue has to be looked after
--      rank    the last one given out
--      last    the end of the longest lease granted by this script
local o, busy, kept, t = s[1], s[2], tonumber(s[3] or 0), tonumber(s[4] or 0)
if s[7] == nil then
  local more = redis.call('HMGET', S, 'e', 'a', 'l')
  s[5], s[6], s[7] = more[1], more[2], more[3]
end
local e, due, rank, last = tonumber(s[5] or 0), tonumber(s[6] or 0), tonumber(s[7] or 0), 0
-- None of ours is greater than a double is exact for; nan is less than nothing.
if not (kept and t and e and due and rank) or not (math.abs(kept) < 2^53 and math.abs(t) < 2^53 and
    math.abs(e) < 2^53 and math.abs(due) < 2^53 and math.abs(rank) < 2^53) then -- before anything is written
  -- include unreadable
end
local readers = 0
if not o then
  readers = redis.call('ZCARD', R)
end
local waiting = redis.call('ZCARD', Q)
-- Each fails where somebody else has that key.
redis.call('ZCARD', A)
redis.call('ZCARD', X)
