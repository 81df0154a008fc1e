-- Grab on one of several servers that decide together: it takes nothing on a server
-- whose connections have not said since when it has kept its data, or that has kept it
-- for too short.
--
-- KEYS  S of each lock, and B as vote has it
-- ARGV  of each lock: id, ttl ms, rejoin ms, proposed token, lead µs
-- Reply that of grab
-- include limits
-- include now
local plain, replies = true, {}
for i = 1, #KEYS / 2 do
  local S, B, first = KEYS[2 * i - 1], KEYS[2 * i], 5 * i - 4
  local id, expiry = ARGV[first], now + ARGV[first + 1]
  local proposal, lead = tonumber(ARGV[first + 3]), ARGV[first + 4]
  local kept = tonumber(redis.call('HMGET', B, 'since')[1] or nil)
  local granted
  if kept and us - kept >= ARGV[first + 2] * 1000 then
    local s = redis.pcall('HMGET', S, 'o', 'b', 'd', 't')
    -- include proposed
    -- include grantfree
  end
  replies[i] = granted or 0
end
return #replies > 1 and replies or replies[1]
