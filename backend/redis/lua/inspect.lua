-- Says who holds a lock and who waits for it, a page at a time. It only reads.
--
-- KEYS  S R Q A
-- ARGV  the end of the lease of the last reader looked at ('': none was), from which on to tell
--       of readers, how many of them, the rank of the last waiter that was told
-- Reply µs, holder ('': nobody, or readers), its entries, the end of its lease, the last
--       token, readers and the end of their leases, waiters and their ranks, the rank of
--       the last one looked at, 1 if there may be more, and the readers with a token
--       of their own and that token, the end of the lease of the last reader looked at
--       (+inf: there are no more)
--
-- Readers come in the order in which their leases end: who renews meanwhile is yet to come.
-- Those with the end that was looked at last come again, as nobody knows how many of them are
-- still there.
local S, R, Q, A, from, limit, after = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], tonumber(ARGV[2]), ARGV[3]
-- include now
local s = redis.call('HMGET', S, 'o', 'n', 'e', 't')
local holder, entries, expiry, last = s[1], tonumber(s[2] or 1), tonumber(s[3] or 0), tonumber(s[4] or 0)
if not (entries and expiry and last) or not (math.abs(entries) < 2^53 and math.abs(expiry) < 2^53 and
    math.abs(last) < 2^53) then
  -- include unreadable
end
if not holder or expiry <= now then
  holder = ''
end
local told, readers, waiters, tokens = {}, {}, {}, {}
if not s[1] then
  if from == '' then
    from = string.format('(%.0f', now)
  end
  told = redis.call('ZRANGEBYSCORE', R, from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
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
local full = #told == 2 * limit
local more = (full or #queue == 500) and 1 or 0
return {us, holder, entries, expiry, last, readers, waiters, queue[#queue] or after, more, tokens,
  full and told[#told] or '+inf'}
