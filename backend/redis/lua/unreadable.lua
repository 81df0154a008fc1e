-- Ends a script that meets a hash with other contents than those of a lock.
error('WRONGTYPE the key holds something else than a lock')
