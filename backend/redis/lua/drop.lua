-- Ends an exclusive hold if nobody waits for the lock and little has to be known
-- to say so. What is noted of refused ids (2) stays.
--
-- KEYS  S
-- ARGV  id
-- Reply 0, or -1: nothing has changed, and release can tell more
local S = KEYS[1]
local s = redis.call('HMGET', S, 'o', 'b', 'd')
if s[1] == ARGV[1] and (not s[2] or s[2] == '2') and s[3] then
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  return 0
end
return -1
