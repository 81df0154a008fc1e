-- Sets rest to the ms until the last of the holders expires, 0 if there is none.
local rest = 0
if o then
  rest = e - now
elseif readers > 0 then
  rest = redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2] - now
end
