package simulation

import (
	"time"

	"github.com/dlock-go/dlock"
)

// A lease that is lost has run out, or somebody has taken it: what it says, and what hooks and the logger
// are told, is what has happened. One that has run out has reached its end, and of one that was taken the
// server, or a majority, has no hold.

// runsOut notes until when a lease that is alive says that it lasts.
func (r *register) runsOut(b *belief, until time.Time) {
	b.untilThen = until.Add(r.w.wall.ahead())
}

// hasRunOut checks that a lease that says it has run out has reached its end, as it was when it was last
// looked at: it only moves on, but where the clock of a server was set. Small limits end many at once.
func (r *register) hasRunOut(b *belief, err error) {
	if causeOf(err) != dlock.LossExpired || b.multi || b.untilThen.IsZero() || b.isAnyDocked() || r.w.plan.Small || r.dead[b.client] || r.stood(b.client, b.granted) || r.stuttered(b.granted) {
		return
	}
	if early := time.Until(b.untilThen) - r.w.wall.ahead(); early > late {
		r.violate("hooks are told what is", "%v has run out, and had lasted for %v more: %v", b, early, err)
	}
}

// wasTaken checks that a lock which hooks are told was taken is not there any more. A server that has older data
// again, or another one, may have it again; a member of a quorum that the client does not hear may have renewed
// it.
func (r *register) wasTaken(client int, e dlock.LostEvent) {
	began := time.Now().Add(-e.Age - lingers)
	name := r.w.plan.Clients[client].Prefix + e.Name
	if e.Cause != dlock.LossTaken || e.Token == 0 || e.Shared || !r.w.hasServers() || r.isAnyStrange([]string{name}, began) || r.heldUpSince(began) {
		return
	}
	if r.w.plan.Clients[client].Hooks == "slow" || r.touched(client, began, func(t touch) bool { return t.splits }) || r.cameBack(began) {
		return
	}
	there := 0
	for _, s := range r.w.keepers(name) {
		if r.w.plan.Backend == "quorum" && r.isSilentTo(client, s, time.Now().Add(-longestTTL(r.w.plan.TTL))) {
			continue
		}
		t := r.lock(name).last[s.index].asOf(s.clock().UnixMilli())
		if t.holder != "" && s.owner(t.holder) == r.w.label(client) && uint64(t.token) == e.Token {
			there++
		}
	}
	if there >= r.w.plan.need() {
		r.violate("hooks are told what is", "c%d: %+v, and %d servers have the hold", client, e, there)
	}
}

// cameBack reports whether a server has had older data since then.
func (r *register) cameBack(since time.Time) bool {
	for _, t := range r.touches {
		if t.kind == "restart-old" && t.to.After(since) {
			return true
		}
	}
	return false
}
