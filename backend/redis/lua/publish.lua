-- How a client is told something, and how those who listen are counted.
local publish, numsub, channel = 'publish', 'numsub', 'dlock:c:'
