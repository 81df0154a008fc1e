-- Ends exclusive holds, each if nobody waits for its lock and little has to be
-- known to say so. What is noted of refused ids (2) stays.
--
-- KEYS  S of each lock
-- ARGV  the id of each
-- Reply for one lock 0, or -1: nothing has changed, and release can tell more;
--       for several a list of that
local replies = {}
for i = 1, #KEYS do
  local S = KEYS[i]
  local s = redis.pcall('HMGET', S, 'o', 'b', 'd')
  replies[i] = -1
  if s[1] == ARGV[i] and (not s[2] or s[2] == '2') and s[3] then
    redis.call('HDEL', S, 'o', 'e', 'n', 's')
    replies[i] = 0
  end
end
return #KEYS > 1 and replies or replies[1]
