-- Looks after a lock that a client has let go of: lets in who can be, and
-- tells the head of the queue that it is the head.
--
-- KEYS  S R Q A
-- ARGV  g ms, publish command, channel prefix, keep ms
-- Reply OK µs waiting more rest
local S, R, Q, A = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local g, publish, channel, keep = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local s = redis.call('HMGET', S, 'o', 'e', 't')
local o, e, t = s[1], tonumber(s[2] or 0), tonumber(s[3] or 0)
local readers, waiting = redis.call('ZCARD', R), redis.call('ZCARD', Q)
redis.call('ZCARD', A)

-- include settle

if waiting > 0 then
  local head = redis.call('ZRANGE', Q, 0, 0)[1]
  local client = string.match(head, ':([^:]*)')
  redis.pcall(publish, channel .. (client or ''), 'poll ' .. head)
end

-- include rest

return {'OK', us, waiting, more, rest}
