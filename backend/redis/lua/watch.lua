-- Sets watch to the ms after which the client has to look at the lock, for
-- nobody else would: somebody waits, or has been let in and not confirmed it. It
-- is 0 if there is nothing to look after.
local watch, rest = more, missing
if o then
  rest = e - now
elseif readers > 0 then
  rest = redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2] - now
end
if more == 0 and (waiting > 0 or rest > 0 and rest <= g) then
  watch = math.min(rest, g) + 5
end
