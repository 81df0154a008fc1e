-- Since when the server has kept what it knows, as the connection has announced.
--
-- Uses  us
-- Sets  since: the µs
local since = tonumber(redis.call('HMGET', 'dlock:boot', 'since')[1] or us)
