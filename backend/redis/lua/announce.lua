-- Runs on each new connection of a member of a quorum, before anything is asked
-- there: no connection outlives a restart, so none is asked to vote that has not
-- been seen.
--
-- KEYS  B
-- ARGV  1 if every write is on disk before its reply, else 0
-- Reply the µs since when the server has kept what it knows
local B, durable = KEYS[1], ARGV[1]
-- include now
-- include boot
return since
