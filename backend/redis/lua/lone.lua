-- Ends an exclusive hold, and the script with it, if nothing else is noted of the lock.
--
-- Uses  as letgo
if s[1] == id and not s[2] and s[3] and not refusing then
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  if used and used > tonumber(s[4] or 0) then
    redis.call('HSET', S, 't', used)
  end
  return 0
end
