package simulation

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// leavesRest notes until when the server may keep a lock that its owner unlocks, or that the library gives back
// as another one of the same lease is lost.
func (r *register) leavesRest(b *belief) {
	err := b.lease.Err()
	if p := (party{b.client, b.name}); b.parent == nil && (err == nil || b.multi && errors.Is(err, dlock.ErrLost)) {
		r.rest[p] = later(r.rest[p], b.most)
	}
}

// restsOf checks that a server keeps no lock for a minimum hold that has not begun: that of a lease which
// no caller has received, or that was lost.
func (r *register) restsOf(s *server, name string, old, t truth) {
	if r.w.plan.Backend != "redis" || !r.calm(time.Now()) {
		return
	}
	for _, id := range t.holders() {
		i := r.w.indexOf(s.owner(id))
		if i < 0 || !strings.HasSuffix(id, "!") || slices.Contains(old.holders(), id) || r.closing[i] || r.w.plan.Clients[i].Hooks == "panic" {
			continue
		}
		for _, b := range r.beliefs {
			if b.client == i && b.name == name && b.multi && b.lease.Err() != nil {
				r.leavesRest(b)
			}
		}
		if p := (party{i, name}); time.Since(r.rest[p]) > left {
			r.violate("a minimum hold is kept", "%s rests for c%d, and nobody has unlocked it: %s", name, i, id[:8])
		}
	}
}
