-- Turns a hold into one of another kind, and lets in who can be now.
--   shared    an exclusive hold becomes a shared one, token and all
--   expiring  a hold goes on until a given time and ends by itself then. It is kept under
--             another id, so that nothing about it that may be under way prolongs or ends
--             it.
--
-- KEYS  S R Q A X
-- ARGV  id, kind, ms from now: for shared how long it is kept at least (0: it is not
--       extended), for expiring when it ends; the last token the holder has used, tomb (1:
--       refuse this id from now on, an acquire of it may be under way)
-- Reply OK watch or LOST watch
-- include lock
local id, expiring, used = ARGV[1], ARGV[2] == 'expiring', tonumber(ARGV[4])
local left = expiring and id .. '!' or id
-- include status
-- include firstwrite
local function reads(who) return readers > 0 and tonumber(redis.call('ZSCORE', R, who) or 0) > now end
local status, changed, till = 'LOST', false, now + ARGV[3]
if o == id and e > now then
  status = 'OK'
  if expiring then
    o, e, last = left, till, till
    redis.call('HSET', S, 'o', left, 'e', e)
  else
    o, readers, changed, last = false, 1, true, math.max(e, till)
    redis.call('ZADD', R, last, id) -- first: it fails where somebody else has this key
    redis.call('HDEL', S, 'o', 'e', 'n', 's')
  end
  if used > t then
    t = used
    redis.call('HSET', S, 't', t)
  end
elseif expiring and reads(id) then
  status, changed, last = 'OK', true, till
  redis.call('ZREM', R, id)
  redis.call('ZADD', R, last, left)
elseif o == left and e > now or reads(left) then
  status = 'OK' -- it was asked twice
end

-- include handover

joined = joined or changed
local refusing = ARGV[5] == '1'
-- include expiries
-- include watch

return {status, watch}
