-- What a script about one lock begins with.
--
-- Uses KEYS  S R Q A X
-- Sets s     what status uses, and what limits, publish and now set
local S, R, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- include limits
-- include publish
-- include now
local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
