package simulation

import "time"

// Who takes a free lock on a quorum proposes a token that all can take, so that most locks take one round trip:
// the servers are told another token rarely.

// A mean is what the locks of a client have taken.
type mean struct{ locks, rounds int }

// Of so many locks one may take another round, beside so many before their client knows how far the servers are.
const (
	oneInLocks = 4
	atFirst    = 3
)

// countsRounds notes how often a call that has got a free lock on a quorum has asked a server, and checks
// what those of its client take together. Where clocks differ nobody can propose what all take.
func (r *register) countsRounds(c *call, p *passage, kind string) {
	if kind != "free" || r.w.plan.Backend != "quorum" || r.w.plan.needsAll() || r.w.plan.clocksApart() || len(c.names) > 1 {
		return
	}
	m := r.means[c.client]
	m.locks++
	rounds := r.mostAsked(c, p)
	if rounds > 1 && r.seemsFree(c, p, kind) {
		rounds-- // it may have asked in vain, as its key has to be prolonged
	}
	m.rounds += rounds
	if m.rounds > m.locks+m.locks/oneInLocks+atFirst {
		r.violate("most locks take one trip", "c%d has asked a server %d times for %d locks that were free", c.client, m.rounds, m.locks)
		m = mean{}
	}
	r.means[c.client] = m
}

// countsHandOver checks how long those who wait on a quorum take together since a member has let them in: its
// message takes half a round trip, and the others are asked in one more.
func (r *register) countsHandOver(c *call, in time.Time) {
	plan, trip := r.w.plan, r.w.plan.trip()
	if plan.needsAll() || plan.clocksApart() || plan.Jitter > 0 || plan.Far > 0 || c.what == "rlock" || !c.plain {
		return
	}
	m := r.handOvers[c.client]
	m.locks++
	took := time.Since(in)
	if took > trip+trip/2+trip/4 {
		m.rounds++
	}
	if m.rounds > m.locks/oneInLocks+atFirst {
		r.violate("most locks take one trip", "c%d has had %d locks, and %d of them later than two round trips after the Unlock", c.client, m.locks, m.rounds)
		m = mean{}
	}
	r.handOvers[c.client] = m
}
