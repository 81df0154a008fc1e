-- Says whether a lock is held or waited for. It only reads.
--
-- KEYS  S R Q A
-- Reply 1, or 0
-- include now
local s = redis.pcall('HMGET', KEYS[1], 'o', 'e')
if s[1] and (tonumber(s[2]) or 0) > now then
  return 1
end
for _, ends in ipairs({KEYS[2], KEYS[4]}) do
  local last = redis.pcall('ZREVRANGE', ends, 0, 0, 'WITHSCORES')[2]
  if last and tonumber(last) > now then
    return 1
  end
end
return 0
