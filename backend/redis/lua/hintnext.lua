-- Included where a script has let in as many as one should, and whoever asked for that may
-- have the lock: some of those who still wait ask next. One of them is enough, so it does
-- not matter where in the queue they are. Clients that are gone are passed over. One whose
-- machine is lost is counted for minutes, so three clients are told.
--
-- Uses Q publish numsub channel
local left, known = 3, {}
for i, head in ipairs(redis.call('ZRANGE', Q, 0, 999)) do
  local hint, client = 'poll ', string.match(head, ':([^:]*)')
  if client and not known[client] then
    known[client] = true
    local counted = redis.pcall('PUBSUB', numsub, channel .. client)
    local there = counted.err or counted[2] > 0
    if there or i == 1 then -- the head may listen where this master was before: see handover
      -- include hint
    end
    left = there and left - 1 or left
    if left == 0 then
      break
    end
  end
end
