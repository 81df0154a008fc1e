-- Acquire on one of several servers that decide together: it first asks since
-- when this one has kept its data, and a new token of a free lock is no less
-- than the one proposed.
--
-- KEYS  S R Q A X, and B: a hash with the µs since when the server has kept what it
--       knows (since), which is lost with the data; the run of the server in which
--       that was found out (run); and whether every write was on disk before its
--       reply (durable)
-- ARGV  those of acquire, with a rank or '', then rejoin ms, proposed token,
--       lead µs: how far a proposal may be ahead of the time; and 1 if the
--       connection may not have been announced
-- Reply NOT_READY µs rest     the data goes back less than rejoin ms
--       or a reply of acquire
local S, R, Q, A, X, B = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
-- include limits
-- include publish
-- include now
local kept = ARGV[8] == '0' and tonumber(redis.call('HMGET', B, 'since')[1] or nil)
if not kept then
  local durable
  -- include boot
  kept = since
end
local missing = ARGV[5] - math.floor((us - kept) / 1000)
if missing > 0 then
  return {'NOT_READY', us, missing}
end
local proposal, lead = tonumber(ARGV[6]), ARGV[7]
-- include proposed
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't')
-- include grantorqueue
