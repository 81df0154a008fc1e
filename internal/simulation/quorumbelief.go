package simulation

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// A question to a quorum is answered by what its servers say together, where no one of them need know
// the hold as it is: where all are needed each has a token of its own. So what is shown, and what a
// Break ends, is compared with what clients believe.

// isCalm reports whether nothing has gone wrong for some time before a call, or but a Break.
func (r *register) isCalm(c *call, but func(touched) bool) bool {
	then := c.start.Add(-2 * lingers)
	return !slices.ContainsFunc(r.touches, func(t touched) bool { return t.to.After(then) && !but(t) })
}

// showsBeliever checks that who has had a lock alone all the time of a call is shown as its holder, and
// nobody else.
func (r *register) showsBeliever(c *call, s dlock.Snapshot) {
	if r.w.plan.Backend != "quorum" || !r.isCalm(c, func(touched) bool { return false }) {
		return
	}
	var shown []uint64
	for _, h := range s.Holders {
		shown = append(shown, h.Token)
	}
	for _, b := range r.beliefs {
		if b.name != c.names[0] || !b.isExclusive() || !b.granted.Before(c.start) || r.dead[b.client] {
			continue
		}
		if !slices.Equal(shown, []uint64{b.token}) {
			r.violate("a question is answered truly", "c%d inspect %s on a quorum: tokens %v, and %v", c.client, b.name, shown, b)
		}
	}
}

func (b *belief) isExclusive() bool { return b.live() && !b.shared }

// A doomed hold is what the servers of a quorum have of one that is about to be broken.
type doomed struct {
	c     *call
	parts map[int]string // ids by server
}

// dooms notes what a Break of that token is to end.
func (r *register) dooms(c *call, token uint64) *doomed {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &doomed{c, make(map[int]string)}
	owned := func(b *belief) bool {
		return b.name == c.names[0] && b.token == token && b.isExclusive() && !b.granted.After(time.Now().Add(-unanswered))
	}
	i := slices.IndexFunc(r.beliefs, owned)
	if i < 0 || r.w.plan.Backend != "quorum" {
		return d
	}
	for _, s := range r.w.masters() {
		if id := r.lock(c.names[0]).last[s.index].holder; id != "" && s.owner(id) == r.w.label(r.beliefs[i].client) {
			d.parts[s.index] = id
		}
	}
	return d
}

// ended checks that no server has any of that when the Break has returned.
func (d *doomed) ended(r *register, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || d.c.ctx.Err() != nil || !r.isCalm(d.c, isBreak) {
		return // whoever has no more time, as under the hold itself, does not wait for the last servers
	}
	for s, id := range d.parts {
		if r.lock(d.c.names[0]).last[s].holder == id {
			r.violate("a break ends its hold", "c%d broke %s, and s%d has it still", d.c.client, d.c.names[0], s)
		}
	}
}
