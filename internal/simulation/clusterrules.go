package simulation

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// local are the faults of one node of a cluster: they concern the locks there, and no other.
var local = []string{
	"delay", "slow", "reset", "cut", "hole", "hole-reset", "half-open", "half-dead", "deaf", "mute",
	"pause", "restart", "restart-empty", "restart-old", "full", "readonly", "loading", "busy", "flush", "evict",
	"misconf", "noperm", "no-channels", "login", "door", "locked-out", "ungreeted", "unanswered",
}

// spared reports whether all that has gone wrong since then for a client has done so at
// nodes of a cluster that have none of the locks, while it knew who has which. Where slots
// move nobody can say.
func (r *register) spared(client int, names []string, since time.Time, counts func(touch) bool) bool {
	if r.w.layout == nil || !r.knowsTheWay(client, since) {
		return false
	}
	for _, t := range r.touches {
		if t.kind == "slot-move" {
			return false
		}
		if t.client >= 0 && t.client != client || !t.to.After(since) || !counts(kinds[t.kind]) {
			continue
		}
		near := slices.ContainsFunc(names, func(n string) bool { return homeOf(slotOf(lockKey(n))) == t.server })
		if near || t.server == everywhere || !slices.Contains(local, t.kind) {
			return false
		}
	}
	return true
}

// knowsTheWay reports whether a client has had a lock before then.
func (r *register) knowsTheWay(client int, then time.Time) bool {
	for p, tn := range r.tenures {
		if p.client == client && tn.known.Before(then) {
			return true
		}
	}
	return false
}

// namesOf are the locks of a lease.
func (r *register) namesOf(lease *dlock.Lease) (names []string) {
	for _, b := range r.beliefs {
		if b.lease == lease {
			names = append(names, b.name)
		}
	}
	return names
}
