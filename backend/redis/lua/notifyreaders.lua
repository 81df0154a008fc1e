-- Goes on to tell readers that somebody waits, the one first whose lease lasts longest:
-- whoever renews it meanwhile is told with that.
--
-- KEYS  S R
-- ARGV  how many have been told
-- Reply how many have been told now, or 0 if there are no more
local R, from, holders = KEYS[2], tonumber(ARGV[1]), false
-- include publish
-- include notifyholders
return next
