-- Runs on each new connection of a member of a quorum, before anything is asked
-- there: no connection outlives a restart, so none is asked to vote that has not
-- been seen.
--
-- KEYS  B
-- ARGV  1 if every write is on disk before its reply, 0 if not, or if that is not known
-- Reply the µs since when the server has kept what it knows
local B, durable = KEYS[1], ARGV[1]
-- include now
-- include boot
local noted = redis.call('HMGET', B, 'since', 'durable')
if noted[1] and tonumber(noted[1]) < since or noted[2] == '1' and durable ~= '1' then
  -- There is no room to write this down, and later requests on this connection do not look
  -- for it. Nothing at all takes no room. Where not even that may be written, the
  -- connection is of no use.
  redis.call('HDEL', B, 'since', 'durable')
end
return since
