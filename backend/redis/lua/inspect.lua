-- Says who holds a lock and who waits for it, 250 at a time. It only reads.
--
-- KEYS  S R Q A
-- ARGV  the end of the lease of the last reader looked at ('': none was), how many of those with
--       that end to pass over, the rank of the last waiter that was told
-- Reply µs, holder ('': nobody, or readers), its entries, the end of its lease, the last
--       token, readers and the end of their leases, waiters and their ranks, the rank of
--       the last one looked at, 1 if there may be more, and the readers with a token
--       of their own and that token, the end of the lease of the last reader looked at
--
-- Readers come in the order in which their leases end: who renews meanwhile is yet to come.
local S, R, Q, A, from, skip, after = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3]
-- include now
local s = redis.call('HMGET', S, 'o', 'n', 'e', 't')
local holder, expiry = s[1], tonumber(s[3] or 0)
if not holder or expiry <= now then
  holder = ''
end
local told, readers, waiters, tokens = {}, {}, {}, {}
if not s[1] then
  if from == '' then
    from = string.format('(%.0f', now)
  end
  told = redis.call('ZRANGEBYSCORE', R, from, '+inf', 'WITHSCORES', 'LIMIT', skip, 250)
end
for i = 1, #told, 2 do
  if tonumber(told[i + 1]) > now then
    readers[#readers + 1], readers[#readers + 2] = told[i], told[i + 1]
    local token = redis.call('HMGET', S, '=' .. string.match(told[i], '^[^!]*'))[1]
    if token then
      tokens[#tokens + 1], tokens[#tokens + 2] = told[i], token
    end
  end
end
local queue = redis.call('ZRANGEBYSCORE', Q, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, 250)
for i = 1, #queue, 2 do
  if tonumber(redis.call('ZSCORE', A, queue[i]) or 0) > now then
    waiters[#waiters + 1], waiters[#waiters + 2] = queue[i], queue[i + 1]
  end
end
local more = (#told == 500 or #queue == 500) and 1 or 0
return {us, holder, tonumber(s[2] or 1), expiry, tonumber(s[4] or 0), readers, waiters, queue[#queue] or after, more, tokens,
  told[#told] or ARGV[1]}
