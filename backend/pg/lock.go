package pg

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A localLock is what this client does with one key: at most one attempt to get it,
// and the grants that it has. Postgres takes a session for one owner, who may have a
// lock any number of times, so requests of one client exclude one another here, by key
// and not by name: two names with one key exclude each other too. The mutex of the
// backend guards it.
type localLock struct {
	key     int64
	attempt *attempt      // under way
	grants  []*grant      // more than one only of readers
	changed chan struct{} // closed when attempt or grants have changed, or what is known of them
}

// A grant is one advisory lock of one session. Readers share it.
type grant struct {
	lock      *localLock
	session   *session
	shared    bool
	token     uint64
	transfers int // from one request of this client to the next
	sent      time.Time
	users     int      // requests that have not released it
	holds     []*hold  // of those requests that have got theirs
	pending   *outcome // of a release or downgrade under way
	over      bool     // released, or lost with its session
	wanted    bool     // the holder knows that somebody waits
}

// isBusy reports whether a statement about g is under way. The mutex of the backend is
// held.
func (g *grant) isBusy() bool { return g.pending != nil && !g.over }

// A hold is a grant as one request has it.
type hold struct {
	grant    *grant
	request  backend.Request
	release  *outcome // nil until somebody asks for it
	reported bool     // a caller has got the outcome
}

// An outcome is the result of something that is done once, however many want
// it done.
type outcome struct {
	done chan struct{}
	err  error
}

func newOutcome() *outcome { return &outcome{done: make(chan struct{})} }

func (o *outcome) set(err error) {
	o.err = err
	close(o.done)
}

func (o *outcome) isSet() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// wait returns the result, or ErrUnavailable when ctx ends before.
func (o *outcome) wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
}

// lockFor returns the localLock of key, a new one if there is none. It is called with
// b.mu held.
func (b *Backend) lockFor(key int64) *localLock {
	l := b.locks[key]
	if l == nil {
		l = &localLock{key: key}
		b.locks[key] = l
	}
	return l
}

// change wakes those who wait for something to change.
func (l *localLock) change() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// removeUnused wakes those who wait for l, and removes l if it has neither attempt nor
// grant. It is called with b.mu held.
func (b *Backend) removeUnused(l *localLock) {
	l.change()
	if l.attempt == nil && len(l.grants) == 0 && b.locks[l.key] == l {
		delete(b.locks, l.key)
	}
}

// dropGrant removes a grant that is over. It is called with b.mu held.
func (b *Backend) dropGrant(g *grant) {
	if g.over {
		return
	}
	g.over = true
	s := g.session
	delete(s.grants, g)
	g.lock.grants = without(g.lock.grants, g)
	b.removeUnused(g.lock)
	b.endUse(s)
}

// An admission says what a request may do at a lock.
type admission uint8

const (
	mayAsk     admission = iota // ask the server
	mayJoin                     // wait for what the server says to other readers
	mustWait                    // nobody can say before the place changes
	mustGiveUp                  // the lock is held, or was asked for in vain
)

// admit decides what r may do.
func (l *localLock) admit(r *backend.Request) admission {
	shared := r.Mode == backend.Shared
	if a := l.attempt; a != nil {
		switch {
		case a.isAbandoned():
			return mustWait // for its traces to be gone
		case !r.Wait && a.foundHeld:
			return mustGiveUp
		case shared && a.shared && a.lease == leaseOf(r.TTL):
			return mayJoin
		}
		return mustWait
	}
	for _, g := range l.grants {
		switch {
		case g.pending != nil:
			return mustWait
		case shared && g.shared:
		case r.Wait:
			return mustWait
		default:
			return mustGiveUp
		}
	}
	return mayAsk
}

// isChanging reports whether a release or downgrade is under way.
func (l *localLock) isChanging() bool {
	return slices.ContainsFunc(l.grants, (*grant).isBusy)
}

// isHeld reports whether the lock is certainly held, by this client or another one.
func (l *localLock) isHeld() bool {
	if l.attempt != nil && l.attempt.foundHeld {
		return true
	}
	return slices.ContainsFunc(l.grants, func(g *grant) bool { return g.pending == nil })
}

// readers returns a grant that further readers with that lease may join, nil if there
// is none.
func (l *localLock) readers(lease time.Duration) *grant {
	for _, g := range slices.Backward(l.grants) {
		if g.shared && g.pending == nil && g.session.lease() >= lease {
			return g
		}
	}
	return nil
}
