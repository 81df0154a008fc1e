-- What all parties agree on, in ms: how long a grant lasts that its waiter has
-- not confirmed, how long a token outlives its last lease, and how much longer,
-- so that not every lease has to see to that; how often a queue is looked after,
-- how long one is kept that nobody looks after, and how long an id is refused.
local g, keep, slack = 5000, 600000, 60000
local upkeep, queued, refused = 120000, 480000, 120000
