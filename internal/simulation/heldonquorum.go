package simulation

import (
	"slices"
	"time"
)

// tryLimit is for how long a try on a quorum asks again while its members do not agree.
const tryLimit = 250 * time.Millisecond

// refusedTo reports whether a call can truly have been told that a lock is held.
func (r *register) refusedTo(c *call, name string) bool {
	if r.w.plan.Backend != "quorum" || r.steps(c.start) {
		return r.busy(name, c.start)
	}
	return r.refusedOnQuorum(c, name)
}

// refusedOnQuorum reports whether members of a quorum can have refused a call: who wants a lock alone is
// refused by who has it or waits for it, and a reader by a writer or who waits. One of them is enough
// for who waited there, or has asked again until a try has no more time. Who is told at once has met
// one at which others wait, or so many that no majority was left, or did not hear of them.
func (r *register) refusedOnQuorum(c *call, name string) bool {
	reads := c.what == "rlock" || c.what == "tryrlock"
	excludes := func(p span, id string) bool { return !reads || id == p.holder }
	queues := func(w witness) bool {
		return slices.ContainsFunc(w.spans, func(p span) bool { return len(p.queue) > 0 })
	}
	refuses := func(w witness) bool { return w.ever(excludes) || queues(w) }
	all := r.witnesses(c, name)
	if count(all, refuses) == 0 {
		return false
	}
	if c.waits || time.Since(c.start) >= tryLimit || count(all, queues) > 0 {
		return true
	}
	return count(all, func(w witness) bool { return w.silent || refuses(w) }) > r.w.plan.spare()
}
