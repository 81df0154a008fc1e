package pg

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A place is what this client has to do with one key. A server takes a session
// for one owner, who may have a lock any number of times: it is here that the
// requests of a client exclude one another, by key and not by name, so that two
// names with one key do so too. The backend's mutex guards it.
type place struct {
	key     int64
	ask     *ask     // under way
	grants  []*grant // more than one only of readers
	changed chan struct{}
	room    [1]*grant // of grants
}

// A grant is one advisory lock of one session. Readers share it.
type grant struct {
	place   *place
	session *session
	shared  bool
	token   uint64
	passes  int // how often it was passed on within this client
	sent    time.Time
	users   int      // requests that have it and have not released it
	holds   []*hold  // theirs, as far as they have come for them
	pending *outcome // of what the server is asked to do with it
	over    bool     // released, or lost with its session
	last    call     // that gives it back
	first   hold
	room    [1]*hold // of holds
}

// busy reports whether the server is being asked to do something with g. The
// backend's mutex is held.
func (g *grant) busy() bool { return g.pending != nil && !g.over }

// A hold is a grant as one request has it.
type hold struct {
	grant    *grant
	observer backend.Observer
	release  *outcome // nil: nobody has asked for it
	told     bool     // somebody knows the outcome
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

// place returns the one of key. It is called with b.mu held.
func (b *Backend) place(key int64) *place {
	p := b.places[key]
	if p == nil {
		p = &place{key: key}
		p.grants = p.room[:0]
		b.places[key] = p
	}
	return p
}

// whenChanged returns a channel that is closed when a request has a chance
// again that had none.
func (p *place) whenChanged() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

func (p *place) change() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// tidy forgets p when there is nothing to know of it. It is called with b.mu
// held.
func (b *Backend) tidy(p *place) {
	p.change()
	if p.ask == nil && len(p.grants) == 0 && b.places[p.key] == p {
		delete(b.places, p.key)
	}
}

// drop forgets a grant that is over. It is called with b.mu held.
func (b *Backend) drop(g *grant) {
	if g.over {
		return
	}
	g.over = true
	s := g.session
	delete(s.grants, g)
	g.place.grants = without(g.place.grants, g)
	b.tidy(g.place)
	if s.single {
		s.single = false
		b.putIdle(s)
	} else {
		s.users--
	}
}

// A verdict says what a request can do at a place.
type verdict uint8

const (
	mayAsk     verdict = iota // ask the server
	mayJoin                   // wait for what the server says to other readers
	mustWait                  // nobody can say before the place changes
	mustGiveUp                // the lock is held, or was asked for in vain
)

// judge decides on a request.
func (p *place) judge(r *backend.Request) verdict {
	shared := r.Mode == backend.Shared
	if a := p.ask; a != nil {
		switch {
		case a.abandoned():
			return mustWait // for its traces to be gone
		case !r.Wait && a.held:
			return mustGiveUp
		case shared && a.shared && a.lease == leaseOf(r.TTL):
			return mayJoin
		}
		return mustWait
	}
	for _, g := range p.grants {
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

// held reports whether a lock is in the way for certain.
func (p *place) held() bool {
	if p.ask != nil && p.ask.held {
		return true
	}
	for _, g := range p.grants {
		if g.pending == nil {
			return true
		}
	}
	return false
}

// readers returns the grant that further readers with that lease join, nil if there
// is none.
func (p *place) readers(lease time.Duration) *grant {
	for i := len(p.grants) - 1; i >= 0; i-- {
		if g := p.grants[i]; g.shared && g.pending == nil && g.session.lease() >= lease {
			return g
		}
	}
	return nil
}
