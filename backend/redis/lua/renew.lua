-- Keeps holds alive. A key that is not ours any more, or cannot be read, is a hold that is
-- lost, and no reason to fail the others.
--
-- KEYS  of each lock the same: S of an exclusive hold; or S R Q A X of one that may
--       shared; or R alone of a shared one, while the slot moves from one node to
--       another, and a script may use no key but one that is there
-- ARGV  keys of each lock; ttl ms, or the negative of an expiry beyond which no hold
--       is extended; the id of each lock; then pairs of a lock's number and the last
--       token its holder has used
-- Reply µs, expiry, then for each lock of which that is not all: its number and
--       its own expiry (0: lost, 1: broken), negative if somebody waits
-- include limits
-- include now
local each, target = tonumber(ARGV[1]), tonumber(ARGV[2])
target = target < 0 and -target or now + target
local E = string.format('%.0f', target)
local locks, tokens = #KEYS / each, {}
for i = locks + 3, #ARGV, 2 do
  tokens[tonumber(ARGV[i])] = ARGV[i + 1]
end

local reply, written = {us, target}, false
for i = 1, locks do
  local S, id = KEYS[each * (i - 1) + 1], ARGV[i + 2]
  local s, e, wanted = redis.pcall('HMGET', S, 'o', 'e', 'b', 'd', 't', 'x'), 0, false
  local alone = s.err and each == 1
  local R = alone and S or each > 1 and KEYS[each * (i - 1) + 2]
  local exclusive = s[1] == id
  if exclusive then
    e, wanted = tonumber(s[2]) or 0, s[3] and s[3] ~= '2'
  elseif alone or R and not s.err and not s[1] then
    local score = redis.pcall('ZSCORE', R, id)
    e = type(score) == 'string' and tonumber(score) or 0
  end
  if e <= now then
    local isBroken = s[6] and string.find(' ' .. s[6] .. ' ', ' ' .. id .. ' ', 1, true)
    isBroken = isBroken or each > 1 and type(redis.pcall('ZSCORE', KEYS[each * i], id)) == 'string'
    e = isBroken and 1 or 0
    if not written and not s.err then
      -- A replica must not say what is lost: it may know less than its master. It
      -- refuses what writes, which ends the connection.
      -- include firstwrite
      written = true
    end
  else
    local later = e < target
    e = math.max(e, target)
    local kept = tonumber(s[4]) or 0
    if alone then
      local last = math.max(e, tonumber(redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2]))
      redis.call('PEXPIRE', R, last - now + keep + slack)
    else
      if not written then
        -- include firstwrite
      end
      if kept - e < keep then
        kept = e + keep + slack
        redis.call('HSET', S, 'd', kept) -- S may have been lost
        redis.call('PEXPIRE', S, kept - now)
        if R and not exclusive then
          redis.call('PEXPIRE', R, kept - now)
        end
      end
      if R and not exclusive then
        local noted = s[3]
        -- include notereaders
      end
    end
    written = true
    -- Something is written also of a hold that is not prolonged: WAIT says nothing of what its
    -- own connection has not written.
    if exclusive then
      redis.call('HSET', S, 'e', later and E or string.format('%.0f', e))
    elseif later then
      redis.call('ZADD', R, E, id)
    elseif not alone then
      redis.call('HSET', S, 'd', kept)
    end
    if not alone and tokens[i] and tonumber(tokens[i]) > (tonumber(s[5]) or 0) then
      redis.call('HSET', S, 't', tokens[i])
    end
    if wanted or each > 1 and not exclusive and redis.call('EXISTS', KEYS[each * i - 2]) == 1 then
      e = -e
    end
  end
  if e ~= target then
    reply[#reply + 1], reply[#reply + 2] = i, e
  end
end
return reply
