-- Keeps holds alive that are shared, or may have become so.
--
-- KEYS  S R Q of each lock
-- ARGV, reply as of renew
-- include bounds
-- include now
local target = tonumber(ARGV[1])
target = target < 0 and -target or now + target
local locks, tokens = #KEYS / 3, {}
for i = locks + 2, #ARGV, 2 do
  tokens[tonumber(ARGV[i])] = ARGV[i + 1]
end

local reply = {us, target}
for i = 1, locks do
  local S, R, Q, id = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[i + 1]
  local s, e = redis.pcall('HMGET', S, 'o', 'e', 'd', 't'), 0
  if s[1] == id then
    e = tonumber(s[2])
  elseif not s.err and not s[1] then
    local score = redis.pcall('ZSCORE', R, id)
    e = type(score) == 'string' and tonumber(score) or 0
  end
  if e <= now then
    e = 0
  else
    e = math.max(e, target)
    if (s[3] or 0) - e < keep then
      local kept = e + keep + slack
      redis.call('PEXPIRE', S, kept - now)
      redis.call('PEXPIRE', R, kept - now)
      redis.call('HSET', S, 'd', kept)
    end
    if s[1] == id then
      redis.call('HSET', S, 'e', e)
    else
      redis.call('ZADD', R, e, id)
    end
    if tokens[i] and tonumber(tokens[i]) > tonumber(s[4] or 0) then
      redis.call('HSET', S, 't', tokens[i])
    end
    if redis.call('EXISTS', Q) == 1 then
      e = -e
    end
  end
  if e ~= target then
    reply[#reply + 1], reply[#reply + 2] = i, e
  end
end
return reply
