package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// A breaking is a call of Break on a quorum.
type breaking struct {
	client int
	token  uint64
	start  time.Time
	end    time.Time // zero: it has not returned nil yet
	ended  []int     // members at which it has ended a hold while it was under way
	ids    []string  // of the holds that members knew by the token, once it has returned nil
	told   bool
}

// breaks notes that a client is about to take a lock away.
func (r *register) breaks(c *call, token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.w.plan; p.Backend == "quorum" && p.Need == 0 {
		l := r.lock(c.names[0])
		l.breaks = append(l.breaks, &breaking{client: c.client, token: token, start: time.Now()})
	}
}

// takes checks what has become of a lock at a member of a quorum: a hold that is not over, and that
// somebody else has ended than who had it, was broken under its token.
func (r *register) takes(s *server, name string, t truth) {
	if r.w.plan.Backend != "quorum" || r.w.plan.Need > 0 {
		return
	}
	ms, l := s.clock().UnixMilli(), r.lock(name)
	before := span{truth: l.last[s.index], server: s}
	for _, id := range before.asOf(ms).holders() {
		if by := r.w.indexOf(t.by); t.scripted && by >= 0 && s.owner(id) != "" && t.by != s.owner(id) && !had(t, id) && !had(t, id+"!") {
			r.ends(s, name, by, before.tokenOf(id))
		}
	}
}

// reviveAny checks of all holds that were broken that no majority has them.
func (r *register) reviveAny(name string) {
	l := r.lock(name)
	for _, b := range l.breaks {
		r.revives(l, name, b)
	}
}

// ends notes that a client has ended a hold of another at a member.
func (r *register) ends(s *server, name string, by int, token uint64) {
	var named []*breaking
	for _, b := range r.lock(name).breaks {
		if r.w.plan.hostOf(b.client) == r.w.plan.hostOf(by) && b.token == token { // a script that breaks has no id
			named = append(named, b)
		}
	}
	if len(named) == 1 { // of several by one client nobody knows which it was
		named[0].ended = append(named[0].ended, s.index)
	}
	if len(named) == 0 {
		r.violate("a break names its hold", "c%d ended a hold of %s under token %d at s%d, which it did not name", by, name, token, s.index)
	}
}

// revives checks that no majority has a hold that was broken.
func (r *register) revives(l *lockLog, name string, b *breaking) {
	if b.end.IsZero() || b.told || r.lostSince(b.start) {
		return
	}
	for _, id := range b.ids {
		n := 0
		for _, s := range r.w.masters() {
			if slices.Contains(l.last[s.index].asOf(s.clock().UnixMilli()).holders(), id) {
				n++
			}
		}
		if n >= r.enough() {
			b.told = true
			r.violate("a break ends its hold", "c%d broke %s under token %d, and %d members have it", b.client, name, b.token, n)
		}
	}
}

// lostSince reports whether a member may have lost data since then, or come back with older ones.
func (r *register) lostSince(then time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return kinds[t.kind].data && t.kind != "break" && !t.to.Before(then.Add(-lingers))
	})
}

// brokenOnQuorum checks how a call of Break has ended.
func (r *register) brokenOnQuorum(c *call, token uint64, err error) {
	l, name := r.lock(c.names[0]), c.names[0]
	i := slices.IndexFunc(l.breaks, func(b *breaking) bool {
		return b.client == c.client && b.token == token && !b.start.Before(c.start) && b.end.IsZero()
	})
	if i < 0 || r.steps(c.start) || r.stuttered(c.start) || r.dead[c.client] {
		return
	}
	b, all := l.breaks[i], r.witnesses(c, name)
	if !r.w.hasServers() {
		b.end = time.Now()
		return
	}
	switch {
	case errors.Is(err, dlock.ErrNotHeld):
		answered := slices.ContainsFunc(b.ended, func(i int) bool { return !all[i].silent })
		kept := count(all, func(w witness) bool { return w.always(known(token)) }) >= r.enough()
		if answered || kept {
			r.violate("a break names its hold", "c%d broke %s under token %d: %v, and %v have ended it", c.client, name, token, err, b.ended)
		}
	case err == nil:
		// What met a broken connection is sent again, and may have ended the hold before: see broken.
		fails := r.w.plan.Ends > 0 || r.touched(c.client, time.Time{}, func(t touch) bool { return t.fails })
		if !fails && count(all, func(w witness) bool { return w.ever(known(token)) }) == 0 {
			r.violate("a break names its hold", "c%d broke %s under token %d, which nobody had it under", c.client, name, token)
		}
		b.end = time.Now()
		r.brokenFrom(b, l, name, all)
	}
}

// brokenFrom notes whose leases a Break has ended, and that no majority of members may have them.
func (r *register) brokenFrom(b *breaking, l *lockLog, name string, all []witness) {
	for _, o := range r.beliefs {
		if o.name != name || o.token != b.token || !o.granted.Before(b.start) {
			continue
		}
		o.taken = b.end
		for _, w := range all {
			for _, p := range w.spans {
				for _, id := range p.holders() {
					if p.server.owner(id) == r.w.label(o.client) && known(b.token)(p, id) && !slices.Contains(b.ids, id) {
						b.ids = append(b.ids, id)
					}
				}
			}
		}
	}
	r.revives(l, name, b)
}

// outlivesBreak checks that a lease that was taken away is over when it could not be renewed any more.
func (r *register) outlivesBreak(b *belief) {
	if b.taken.IsZero() || r.lostSince(b.taken) || r.steps(b.taken) {
		return
	}
	if over := time.Since(b.taken.Add(b.ttl + reaction)); over > 0 && !b.limited && b.live() {
		b.taken = time.Time{}
		r.violate("a break ends its hold", "%v was broken, and is alive %v after its end", b, over)
	}
}

// breaksBesideForeign reports whether a Break may say that too few members have ended a hold: one of them has
// something else than the lock and does not say whether it has a part, and another ended its part after it was
// asked again.
func (r *register) breaksBesideForeign(c *call) bool {
	return c.what == "break" && r.w.plan.Backend == "quorum" && r.isForeign()
}
