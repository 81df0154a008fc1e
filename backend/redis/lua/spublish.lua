-- How a client is told something on a cluster, where the lock is, and how those who
-- listen are counted.
local publish, numsub, channel = 'spublish', 'shardnumsub', KEYS[1] .. ':c:'
