-- How a client is told something on a cluster: where the lock is.
local publish, channel = 'spublish', KEYS[1] .. ':c:'
