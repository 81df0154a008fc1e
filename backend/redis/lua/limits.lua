-- What all parties agree on, in ms: how long a grant lasts that its waiter has
-- not confirmed; how long a token outlives its last lease (keep), and how much longer,
-- so that not every lease has to see to that (slack); how often a queue is looked after,
-- how long one is kept that nobody looks after, and how long an id is refused.
local g = 5000
-- include keep
local upkeep, abandoned, refused = 120000, 480000, 120000
