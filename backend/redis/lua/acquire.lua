-- Takes the lock, or joins its queue, or says how an earlier call stands.
--
-- KEYS  S R Q A X
-- ARGV  id, ttl ms, mode (w: wait, t: try, p: heartbeat of one that waits),
--       rank (may be left out)
-- Reply token                granted, for all of ttl
--       GRANTED µs token expiry waiting
--       QUEUED µs rank position pause (ms, then ask again) listens (0: a grant would
--       not be told, the client subscribes on another node) untold (of the readers
--       that have the lock, those from this one on have not been told that somebody
--       waits: the client runs notifyreaders; 0: all have)
--       HELD µs              mode t: somebody has it
--       GONE µs              mode p: not in the queue any more
--       DEAD µs              the id was released before
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- include limits
-- include publish
-- include now
local least = us
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
-- include grantorqueue
