package simulation

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// A stay is what a client has of a lock that nobody else wants.
type stay struct {
	granted time.Time // when its last lease on it began
	left    time.Time // when that was unlocked; zero: it was not
	plain   bool      // the lease was one that may be passed on
	missed  int       // leases in a row that the server was asked for in vain
}

// misses is how often in a row a client may ask the server for a lock that one of its
// goroutines could have passed to the next.
const misses = 5

// mayPass reports whether a lease may be passed on, and come of that.
func mayPass(c *call, b *belief, op *Op) bool {
	return c.what == "lock" && b.parent == nil && op.TTL == 0 && op.Label == "" && op.MaxHold == 0 && op.MinHold == 0 &&
		!op.Downgrade && len(op.Inside) == 0
}

// stays checks that a lock that one client alone wants stays with it: its goroutines pass
// it on among them, and the server is not asked.
func (r *register) stays(c *call, b *belief, op *Op) {
	p, now, plain := party{b.client, b.name}, time.Now(), mayPass(c, b, op)
	how, known := r.w.clients[b.client].hooks.handOver(b.token)
	if b.parent != nil || r.w.knowsFaults() { // there a request may be on its way when the lock is passed on
		return
	}
	s := r.stayed[p]
	if s == nil {
		s = new(stay)
		r.stayed[p] = s
	}
	before := *s
	s.granted, s.left, s.plain = now, time.Time{}, plain
	switch {
	case r.others(p, before.granted), how == dlock.LocalHandOver:
		s.missed = 0
	case known && plain && before.plain && c.start.Before(before.left) && now.Sub(before.left) < time.Second:
		s.missed++
	}
	if s.missed == misses {
		r.violate("a lock stays where it is wanted", "%v: the server was asked %d times in a row, and nobody else wants it", b, misses)
	}
}

// lets notes that a lease is about to be unlocked.
func (r *register) lets(b *belief) {
	if s := r.stayed[party{b.client, b.name}]; s != nil && b.parent == nil && b.lease.Err() == nil {
		s.left = time.Now()
	}
}

// others reports whether another client has had to do with a lock since then.
func (r *register) others(p party, since time.Time) bool {
	for o, at := range r.interest {
		if o.name == p.name && o.client != p.client && !at.Before(since) {
			return true
		}
	}
	return false
}

// got notes how a lease came about.
func (l *listener) got(e dlock.AcquiredEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.lastAt = e, time.Now()
}

// handOver says how the newest lease came about, if that has the token.
func (l *listener) handOver(token uint64) (how dlock.HandOver, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.HandOver, l.last.Token == token
}

// tries is for how long a TryLock may take on a quorum of which one server alone gives
// trouble, and has for some time.
const tries = time.Second

// decides checks that it is soon known on a quorum whether a lock is free.
func (r *register) decides(c *call) {
	if c.what != "trylock" && c.what != "tryrlock" || c.nested || len(r.touches) == 0 || !r.outvoted(c.start.Add(-2*lingers)) || r.isCutOff(c.client, c.start.Add(-2*lingers)) {
		return
	}
	// It knows how fast the servers are, and has only one thing to find out.
	under := 0
	for _, t := range r.touches {
		if t.to.After(c.start.Add(-2 * lingers)) {
			under++
		}
	}
	if first, found := r.served[c.client]; under > 1 || !found || c.start.Sub(first) < lingers || c.hurried || r.isBehindHurried(c) {
		return
	}
	if took := time.Since(c.start); took > tries+10*hookTime+100*r.w.plan.slowest() {
		r.violate("a try is short", "c%d %s %v took %v", c.client, c.what, c.names, took)
	}
}

// hasJustGot reports whether the hooks were told at this moment that one of the names is held.
func (l *listener) hasJustGot(names []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastAt.Equal(time.Now()) && slices.Contains(names, l.last.FullName)
}
