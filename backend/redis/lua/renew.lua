-- Keeps many exclusive holds alive. A key that is not ours any more is a hold
-- that is lost, and no reason to fail the others.
--
-- KEYS  S of each lock
-- ARGV  ttl ms, or the negative of an expiry beyond which no hold is extended;
--       the id of each lock; then pairs of a lock's number and the last token
--       its holder has used
-- Reply µs, expiry, then for each lock of which that is not all: its number and
--       its own expiry (0: lost), negative if somebody waits
-- include bounds
-- include now
local target = tonumber(ARGV[1])
target = target < 0 and -target or now + target
local E = string.format('%d%03d', target / 1000, target % 1000)
local tokens = {}
for i = #KEYS + 2, #ARGV, 2 do
  tokens[tonumber(ARGV[i])] = ARGV[i + 1]
end

local reply = {us, target}
for i = 1, #KEYS do
  local S = KEYS[i]
  local s, e = redis.pcall('HMGET', S, 'o', 'e', 'b', 'd', 't'), 0
  if s[1] == ARGV[i + 1] then
    e = tonumber(s[2])
  end
  if e <= now then
    e = 0
  else
    if (s[4] or 0) - target < keep then
      local kept = math.max(e, target) + keep + slack
      redis.call('PEXPIRE', S, kept - now)
      redis.call('HSET', S, 'd', kept)
    end
    if e < target then
      redis.call('HSET', S, 'e', E)
      e = target
    end
    if tokens[i] and tonumber(tokens[i]) > tonumber(s[5] or 0) then
      redis.call('HSET', S, 't', tokens[i])
    end
    if s[3] and s[3] ~= '2' then
      e = -e
    end
  end
  if e ~= target then
    reply[#reply + 1], reply[#reply + 2] = i, e
  end
end
return reply
