-- Has S say that there are readers. If it does not, S was lost, by hand or because the
-- server evicts, and is there again: a lock of which it says nothing is granted without a
-- look at its readers. Refused ids may be there, too.
--
-- Uses  S; noted: what S says now (b)
if noted ~= '1' and noted ~= '3' then
  redis.call('HSET', S, 'b', '3')
end
