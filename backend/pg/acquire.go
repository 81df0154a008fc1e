package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errAgain says that what a request was to take part in ended just before.
var errAgain = errors.New("try again")

// leaveLimit bounds how long a request that gives up waits until the server has
// forgotten it.
const leaveLimit = time.Second

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	r.TTL = max((r.TTL + time.Millisecond - 1).Truncate(time.Millisecond), minTTL)
	begun := time.Now()
	for {
		h, err := b.acquire(ctx, &r, begun)
		if !errors.Is(err, errAgain) {
			return h, err
		}
	}
}

func (b *Backend) acquire(ctx context.Context, r *backend.Request, begun time.Time) (*backend.Hold, error) {
	a, first, err := b.enter(ctx, r, begun)
	if err != nil {
		return nil, err
	}
	if first {
		a.lead(ctx, r)
	}
	return b.follow(ctx, a, r, begun)
}

// enter finds the ask that r takes part in. The first of an ask leads it.
func (b *Backend) enter(ctx context.Context, r *backend.Request, begun time.Time) (a *ask, first bool, err error) {
	key := b.key(r.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.closed {
			return nil, false, backend.ErrClosed
		}
		p := b.place(key)
		switch p.judge(r) {
		case mayJoin:
			p.ask.join(r)
			return p.ask, false, nil
		case mustGiveUp:
			return nil, false, backend.ErrHeld
		case mayAsk:
			a, err := b.newAsk(p, r, begun)
			return a, true, err
		}
		if err := b.await(ctx, p); err != nil {
			return nil, false, err
		}
	}
}

// newAsk opens an ask at p, unless that is one lock too many. It is called
// with b.mu held.
func (b *Backend) newAsk(p *place, r *backend.Request, begun time.Time) (*ask, error) {
	if n := b.maxLocks(); n > 0 && len(b.places) > n {
		b.tidy(p)
		return nil, backend.Fail(backend.ErrUnavailable, fmt.Errorf("%w: this client may have %d", ErrLockTable, n))
	}
	a := &ask{
		backend: b, place: p, since: begun,
		shared: r.Mode == backend.Shared, fixed: r.Fixed, ttl: r.TTL, lease: leaseOf(r.TTL),
	}
	p.ask = a
	a.join(r)
	return a, nil
}

// await waits until p changes. It is called with b.mu held, and returns so.
func (b *Backend) await(ctx context.Context, p *place) error {
	changed, held := p.whenChanged(), p.held()
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return backend.WaitEnded(ctx, held)
	}
}

func (a *ask) join(r *backend.Request) {
	a.interest++
	if r.Wait {
		a.patient++
	}
}

// part ends the interest of r. Nobody is left on the server's queue in vain.
func (a *ask) part(r *backend.Request) {
	a.interest--
	if r.Wait {
		a.patient--
	}
	if a.cancel != nil && (a.interest == 0 || a.held && a.patient == 0) {
		a.cancel()
	}
}

// abandoned reports whether the ask is only being cleared up.
func (a *ask) abandoned() bool {
	return a.interest == 0 || a.ctx != nil && a.ctx.Err() != nil
}

// follow waits for the answer to a.
func (b *Backend) follow(ctx context.Context, a *ask, r *backend.Request, begun time.Time) (*backend.Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := false
	for !a.settled() {
		if !r.Wait && a.held {
			b.leaveAsk(ctx, a, r)
			return nil, backend.ErrHeld
		}
		if a.held && !told {
			told = true
			b.mu.Unlock()
			r.Queued()
			b.mu.Lock()
			continue // it may have changed meanwhile
		}
		if err := b.hear(ctx, a, begun); err != nil && !a.settled() {
			b.leaveAsk(ctx, a, r)
			if a.held || a.grant != nil && r.Wait { // a grant that comes too late ends a wait
				err = backend.WaitEnded(ctx, true)
			}
			return nil, err
		}
	}
	switch {
	case a.err != nil:
		return nil, a.err
	case a.grant.over:
		return nil, errAgain
	}
	return a.grant.hold(r), nil
}

// hear waits for news of a. It gives up when ctx ends, or when the server has not
// answered since begun for as long as it may. It is called with b.mu held, and
// returns so.
func (b *Backend) hear(ctx context.Context, a *ask, begun time.Time) error {
	if a.news == nil {
		a.news = make(chan struct{})
	}
	news, heard := a.news, a.heard
	b.mu.Unlock()
	defer b.mu.Lock()
	var late <-chan time.Time
	if !heard {
		timer := time.NewTimer(time.Until(begun.Add(backend.FirstAnswer)))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-news:
		return nil
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	case <-late:
		return backend.Fail(backend.ErrUnavailable, errSilent)
	}
}

// leaveAsk takes r out of a. The last to leave stays until the server has forgotten
// a, for a moment at most, so that a request which has returned stands in nobody's
// way. Whether the lock is held may become known meanwhile. It is called with b.mu
// held, and returns so.
func (b *Backend) leaveAsk(ctx context.Context, a *ask, r *backend.Request) {
	a.part(r)
	if a.interest > 0 || a.cancel == nil {
		return
	}
	ctx, cancel := backend.Detach(ctx, min(a.ttl/2, leaveLimit))
	defer cancel()
	for !a.settled() {
		if b.hear(ctx, a, time.Now()) != nil {
			return
		}
	}
	if g := a.grant; g != nil && g.pending != nil {
		o := g.pending
		b.mu.Unlock()
		_ = o.wait(ctx) // nobody wants to know how it ended
		b.mu.Lock()
	}
}

// heat is how many requests for a key that was found held wait at once,
// without a try, before one tries again.
const heat = 128

// maxHot bounds how many keys are remembered as held.
const maxHot = 4096

// isHot reports whether a request for key is to wait without a try.
func (b *Backend) isHot(key int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.hot[key]
	switch {
	case n > 1:
		b.hot[key] = n - 1
	case n == 1:
		delete(b.hot, key)
	}
	return n > 0
}

// warm remembers that others hold key. It is called with b.mu held.
func (b *Backend) warm(key int64) {
	if len(b.hot) >= maxHot {
		clear(b.hot)
	}
	b.hot[key] = heat
}

// hold makes g the hold of r. It is called with b.mu held.
func (g *grant) hold(r *backend.Request) *backend.Hold {
	h := &g.first
	if h.grant != nil {
		h = new(hold)
	}
	h.grant, h.observer = g, r.Observer
	g.holds = append(g.holds, h)
	return &backend.Hold{Request: *r, Token: g.token, Sent: g.sent, Granted: min(r.TTL, g.session.lease()), State: h}
}
