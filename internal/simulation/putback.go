package simulation

import (
	"slices"
	"strconv"
	"time"
)

// A token of a lock stands in the first of its keys. Somebody who puts that key there by hand, as it was before or as
// that of another lock, puts its token there, too. A writer's token is never behind the
// clock of the server. Who joins readers is given the token that stands there, however many greater ones there have been.

// A putBack is a token that somebody has put in the key of a lock by hand.
type putBack struct {
	name  string
	token uint64
	at    time.Time
}

// putsBack notes the token of a value that somebody puts in a key of a lock, if it is the first key.
func (r *register) putsBack(name, suffix string, v *value) {
	token, err := strconv.ParseUint(v.hash["t"], 10, 64)
	if suffix != "" || err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.putBacks = append(r.putBacks, putBack{name, token, time.Now()})
}

// isPutBack reports whether a reader has the very token that somebody has put in the key of its lock. A lock of which
// a writer has been given a greater one since then has that in its key: one that asked so late that it is not the
// hand-over of a hold from before.
func (r *register) isPutBack(b *belief) bool {
	if !b.shared {
		return false
	}
	for _, p := range r.putBacks {
		if p.name == b.name && p.token == b.token && !r.lock(b.name).growsPast(p.token, p.at.Add(2*r.w.plan.TTL+lingers)) {
			return true
		}
	}
	return false
}

// growsPast reports whether a writer that asked after a time has been given a greater token than one.
func (l *lockLog) growsPast(token uint64, since time.Time) bool {
	return slices.ContainsFunc(l.fences, func(f fence) bool { return f.own > token && f.asked.After(since) })
}
