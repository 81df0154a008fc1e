-- Sees since when the server has kept what it knows. A restart shows by the run id,
-- also if the server has loaded what it knew some time before: whatever it granted
-- since then is forgotten. It is no restart if every write was on disk before it
-- was acknowledged: what it has loaded says so, and its settings do not say otherwise, which
-- may have been changed before it restarted. A server that has no mark, and has run no
-- script that may write, has granted nothing since it started. Where it is full the mark
-- stays as it is, and who asks next finds out the same.
--
-- Uses  B us; durable: '1' if every write is on disk before its reply, '0' if not or unknown,
--       nil if nobody has asked
-- Sets  since: the µs, as B says from now on
local boot = redis.call('HMGET', B, 'since', 'run', 'durable')
local since = tonumber(boot[1] or nil)
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)')
if not since or run and run ~= boot[2] then
  local up = run and tonumber(string.match(info, 'uptime_in_seconds:(%d+)'))
  local start = up and math.min(us, us - (up - 1) * 1000000) or us
  local vouched = since == 1 and (not boot[2] or boot[2] == '-')
  if not since then
    local stats = redis.pcall('INFO', 'commandstats')
    local used = type(stats) ~= 'string' or string.find(stats, 'resetstat')
    for line in string.gmatch(used and '' or stats, 'cmdstat_eval[sha]*:([^\r\n]*)') do
      local calls, failed = string.match(line, 'calls=(%d+)'), string.match(line, 'failed_calls=(%d+)')
      used = used or not calls or calls ~= failed -- a call of an unknown script fails
    end
    since = used and us or start
  elseif not vouched and (boot[3] ~= '1' or durable == '0') then
    since = math.max(since, start)
  end
  redis.pcall('HSET', B, 'since', string.format('%.0f', since), 'run', run or '')
end
if durable and durable ~= boot[3] then
  redis.pcall('HSET', B, 'durable', durable)
end
