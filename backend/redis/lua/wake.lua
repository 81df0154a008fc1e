-- How a client is told something.
local publish, channel = 'publish', 'dlock:c:'
