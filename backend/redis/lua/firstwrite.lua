-- A full server refuses a script whose first write may need memory, and lets pass what
-- comes after another write. So whatever prolongs or ends a hold begins with one that
-- needs none. It deletes a field that there never is, which no replica hears of.
redis.call('HDEL', S, 'z')
