-- Included by every script that may let somebody in. It forgets what has
-- expired and gives the lock to the head of the queue while that can have it.
--
-- Uses    S R Q A, g publish channel keep, us now
-- Updates o e t (holder, its expiry, last token), readers, waiting
-- Sets    more: 1 if there was more to do than one script should
local more = 0
if o and e <= now then
  redis.call('HDEL', S, 'o', 'e', 'n', 's')
  o = false
end
if readers > 0 then
  readers = readers - redis.call('ZREMRANGEBYSCORE', R, '-inf', string.format('%.0f', now))
end
if waiting > 0 then
  local silent = redis.call('ZRANGEBYSCORE', A, '-inf', string.format('%.0f', now), 'LIMIT', 0, 128)
  if #silent > 0 then
    waiting = waiting - redis.call('ZREM', Q, unpack(silent))
    redis.call('ZREM', A, unpack(silent))
  end
  if #silent == 128 then
    more = 1
  end
  local left, joined = 128, false
  while waiting > 0 and not o do
    local head = redis.call('ZRANGE', Q, 0, 0)[1]
    local kind, life, polls, client = string.match(head, '^([wr])(%d+)(p?):([^:]*)')
    if kind == 'w' and readers > 0 then
      break
    end
    if left == 0 then
      more = 1
      break
    end
    left = left - 1
    redis.call('ZREM', Q, head)
    redis.call('ZREM', A, head)
    waiting = waiting - 1
    if kind then
      local expiry, token = now + math.min(tonumber(life), g), t
      if kind == 'w' or readers == 0 or t == 0 then
        token = math.max(t + 1, us)
      end
      -- Nobody listens: the waiter is gone. A refusal says nothing of it.
      local heard = 1
      if polls == '' then
        heard = redis.pcall(publish, channel .. client,
          string.format('%s %.0f %.0f %.0f %.0f %s', head, token, us, expiry, waiting, S))
      end
      if type(heard) == 'table' or heard > 0 then
        if kind == 'w' then
          o, e = head, expiry
          redis.call('HSET', S, 'o', head, 'n', 1, 'e', string.format('%.0f', expiry), 't', string.format('%.0f', token))
          redis.call('PEXPIRE', S, string.format('%.0f', expiry - now + keep))
        else
          if token ~= t then
            redis.call('HSET', S, 't', string.format('%.0f', token))
          end
          redis.call('ZADD', R, string.format('%.0f', expiry), head)
          readers, joined = readers + 1, true
        end
        t = token
      end
    end
  end
  if joined then
    local last = redis.call('ZREVRANGE', R, 0, 0, 'WITHSCORES')[2]
    redis.call('PEXPIRE', R, string.format('%.0f', last - now + keep))
    redis.call('PEXPIRE', S, string.format('%.0f', last - now + keep))
  end
end
