-- Ends many holds, and lets in who is next at each lock. One that cannot be ended is no
-- reason to keep the others.
--
-- KEYS  S R Q A X of each lock
-- ARGV  of each lock: those of release, with '' for a token that is left out
-- Reply a list of what release would say, or FAILED for one that release can tell more of
-- include bounds
-- include wake
-- include now
local function one(i)
  local first = 5 * i - 4
  local S, R, Q, A, X = KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], KEYS[first + 4]
  local id, refusing, used = ARGV[3 * i - 2], ARGV[3 * i - 1] == '1', tonumber(ARGV[3 * i])
  local s = redis.call('HMGET', S, 'o', 'b', 'd', 't', 'e', 'a', 'l')
  -- include lone
  -- include letgo
  return status == 'OK' and watch or {status, watch}
end

local replies = {}
for i = 1, #KEYS / 5 do
  local ended, reply = pcall(one, i)
  replies[i] = ended and reply or {'FAILED'}
end
return replies
