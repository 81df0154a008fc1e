-- Included where a script has let in as many as one should, and whoever asked for that may
-- have the lock: some of those who still wait ask next. One of them is enough, so it does
-- not matter where in the queue they are. Clients that are gone are passed over. Those whose
-- machine is lost are counted for minutes, and came at about the same time if it ran several:
-- eight clients are told, far from one another in the queue.
--
-- Uses Q publish numsub channel
local left, known = 8, {}
local heads = redis.call('ZRANGE', Q, 0, 999)
local step = math.max(1, math.floor(#heads / left))
for first = 1, step do
  for i = first, #heads, step do
    local head = heads[i]
    local hint, client = 'poll ', string.match(head, ':([^:]*)')
    if client and not known[client] and left > 0 then
      known[client] = true
      local counted = redis.pcall('PUBSUB', numsub, channel .. client)
      local there = counted.err or counted[2] > 0
      if there or i == 1 then -- the head may listen where this master was before: see handover
        -- include hint
      end
      left = there and left - 1 or left
    end
  end
  if left == 0 then
    break
  end
end
