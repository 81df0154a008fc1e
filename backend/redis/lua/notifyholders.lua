-- Tells those who have a lock that somebody waits, no more than one script should.
--
-- Uses  R, from: how many readers have been told, holders: whom to tell instead, or false
-- Sets  next: how many readers have been told now, or 0 if there are no more
holders = holders or redis.call('ZREVRANGE', R, from, from + 127)
for _, head in ipairs(holders) do
  local hint, client = 'contended ', string.match(head, ':([^:]*)')
  -- include hint
end
local next = #holders == 128 and from + 128 or 0
