-- A new token of a free lock is no less than the one proposed, unless that is too far
-- ahead of the time.
--
-- Uses  us, proposal, lead µs
-- Sets  least
local least = us
if proposal <= us + lead then
  least = math.max(us, proposal)
end
