-- Included after handover. It sees to it that the keys last as long as they must,
-- and notes in S what may be in the others: a script that finds nothing noted
-- there need not look.
--
-- Uses    what status and handover set, and refusing: whether id is refused from now on
if refusing then
  redis.call('ZREMRANGEBYSCORE', X, '-inf', now)
  redis.call('ZADD', X, now + refused, id)
  redis.call('PEXPIRE', X, refused)
end
local lives = waiting > 0 or readers > 0
if kept <= now and (lives or refusing or due > 0) then
  last = math.max(last, now) -- S was lost, or there has been none
end
if last + keep > kept and last > 0 then
  kept, joined = last + keep + slack, readers > 0
  redis.call('HSET', S, 'd', kept)
  redis.call('PEXPIRE', S, kept - now)
end
if joined then
  redis.call('PEXPIRE', R, kept - now)
end
local noted = lives and '1' or false
if refusing or (busy == '2' or busy == '3') and redis.call('EXISTS', X) == 1 then
  noted = lives and '3' or '2'
end
if noted and noted ~= busy then
  redis.call('HSET', S, 'b', noted)
elseif busy and not noted then
  redis.call('HDEL', S, 'b')
end
