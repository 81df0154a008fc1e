-- Since when the server has kept what it knows. The connection may not have been announced, so
-- what says that may be of before a restart.
--
-- Uses  us
-- Sets  since: the µs
local B, durable = 'dlock:boot', nil
-- include boot
