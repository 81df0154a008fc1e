-- Tells a client something about an id of its own that is not to be known to whoever
-- else hears it: all that can be guessed of it, and a digest that proves the rest.
--
-- Uses hint, head: the id, client
redis.pcall(publish, channel .. (client or ''),
  hint .. (string.match(head, '^(.*)%.') or head) .. ' ' .. redis.sha1hex(head))
