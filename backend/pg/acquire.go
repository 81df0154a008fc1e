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

// An ask is the question to the server whether this client may have a lock.
// Readers who come while it is under way share it. The backend's mutex guards
// what changes.
type ask struct {
	backend *Backend
	place   *place
	shared  bool
	fixed   bool
	ttl     time.Duration

	interest int  // requests that want the answer
	patient  int  // those of them that wait for the lock
	held     bool // the server has said that somebody else holds the lock
	ctx      context.Context
	cancel   context.CancelFunc // nil until the ask has a goroutine
	news     chan struct{}      // closed when held or the answer changes
	wake     chan struct{}      // receives when the lock may be free; nil: it is not enlisted
	grant    *grant             // the answer is one of these
	err      error
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	r.TTL = max((r.TTL + time.Millisecond - 1).Truncate(time.Millisecond), minTTL)
	for {
		h, err := b.acquire(ctx, &r)
		if !errors.Is(err, errAgain) {
			return h, err
		}
	}
}

func (b *Backend) acquire(ctx context.Context, r *backend.Request) (*backend.Hold, error) {
	a, first, err := b.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	if first {
		b.lead(ctx, a, r)
	}
	return b.follow(ctx, a, r)
}

// enter finds the ask that r takes part in. The first of an ask leads it.
func (b *Backend) enter(ctx context.Context, r *backend.Request) (a *ask, first bool, err error) {
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
			a, err := b.newAsk(p, r)
			return a, true, err
		}
		if err := b.await(ctx, p); err != nil {
			return nil, false, err
		}
	}
}

// newAsk opens an ask at p, unless that is one lock too many. It is called
// with b.mu held.
func (b *Backend) newAsk(p *place, r *backend.Request) (*ask, error) {
	if n := b.maxLocks(); n > 0 && len(b.places) > n {
		b.tidy(p)
		return nil, backend.Fail(backend.ErrUnavailable, fmt.Errorf("%w: this client may have %d", ErrLockTable, n))
	}
	a := &ask{backend: b, place: p, shared: r.Mode == backend.Shared, fixed: r.Fixed, ttl: r.TTL}
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

// lead starts a. The caller makes the first try by itself, so that a lock that
// is free costs no goroutine.
func (b *Backend) lead(ctx context.Context, a *ask, r *backend.Request) {
	if r.Wait && !a.shared && b.isHot(a.place.key) {
		if p := a.parkAtOnce(); p != nil {
			queued := time.AfterFunc(unheard, r.Queued)
			a.stay(ctx, p)
			queued.Stop()
			return
		}
	}
	t, err := a.begin(ctx)
	if err != nil {
		a.conclude(ctx, r.Wait, err)
		return
	}
	t.session.drive(ctx, t.call)
	select {
	case <-t.call.done:
		err := a.tried(ctx, t)
		if r.Wait && isHeld(err) {
			r.Queued()
		}
		a.conclude(ctx, r.Wait, err)
	case <-ctx.Done():
		finish := func(ctx context.Context) { <-t.call.done; a.conclude(ctx, false, a.tried(ctx, t)) }
		if !b.janitor.Go(finish) {
			finish(ctx)
		}
	}
}

// conclude takes the result of the first try, and goes on if that is needed:
// here, if the caller stays.
func (a *ask) conclude(ctx context.Context, stays bool, err error) {
	switch {
	case !a.goesOn(err):
	case stays && isHeld(err):
		a.stay(ctx, a.parkAtOnce())
	default:
		a.run(nil)
	}
}

// goesOn decides on the result of an attempt: nil is a grant, ErrHeld the
// server's word that the lock is held.
func (a *ask) goesOn(err error) bool {
	if err == nil {
		return false
	}
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	held := isHeld(err)
	if held {
		a.noteHeld()
	}
	switch {
	case b.closed:
		a.settle(nil, backend.ErrClosed)
	case a.abandoned(), a.patient == 0 && err != errAgain:
		a.settle(nil, err)
	case err != errAgain && !held && !passing(err):
		a.settle(nil, err)
	default:
		return true
	}
	return false
}

// noteHeld is called with b.mu held.
func (a *ask) noteHeld() {
	a.backend.warm(a.place.key)
	if !a.held {
		a.held = true
		a.tell()
	}
}

// tell wakes those who follow. It is called with b.mu held.
func (a *ask) tell() {
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
}

// settle ends a with an answer. It is called with b.mu held.
func (a *ask) settle(g *grant, err error) {
	a.grant, a.err = g, err
	if g != nil {
		g.users += a.interest
	}
	if a.cancel != nil {
		a.cancel()
	}
	a.place.ask = nil
	a.tell()
	a.backend.tidy(a.place)
}

func (a *ask) settled() bool { return a.grant != nil || a.err != nil }

// follow waits for the answer to a.
func (b *Backend) follow(ctx context.Context, a *ask, r *backend.Request) (*backend.Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := false
	for !a.settled() {
		if !r.Wait && a.held {
			a.part(r)
			return nil, backend.ErrHeld
		}
		if a.held && !told {
			told = true
			b.mu.Unlock()
			r.Queued()
			b.mu.Lock()
			continue // it may have changed meanwhile
		}
		if !b.listen(ctx, a) && !a.settled() {
			a.part(r)
			b.hearOut(ctx, a)
			return nil, backend.WaitEnded(ctx, a.held || a.grant != nil)
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

// listen waits for news of a, and reports false if ctx ended before. It is
// called with b.mu held, and returns so.
func (b *Backend) listen(ctx context.Context, a *ask) bool {
	if a.news == nil {
		a.news = make(chan struct{})
	}
	news := a.news
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-news:
		return true
	case <-ctx.Done():
		return false
	}
}

// hearOut waits a little for what the server says to a request that was told
// to wait before anybody asked whether the lock is held, and is taken back
// now. It is called with b.mu held, and returns so.
func (b *Backend) hearOut(ctx context.Context, a *ask) {
	if a.held || a.cancel == nil || a.interest > 0 {
		return
	}
	ctx, cancel := backend.Detach(ctx, min(a.ttl/2, time.Second))
	defer cancel()
	for !a.held && !a.settled() && b.listen(ctx, a) {
	}
}

// unheard is how long a request that waits at once, in case that has to be, goes
// without an answer before that is taken for waiting.
const unheard = 5 * time.Millisecond

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
	return &backend.Hold{Request: *r, Token: g.token, Sent: g.sent, Granted: r.TTL, State: h}
}
