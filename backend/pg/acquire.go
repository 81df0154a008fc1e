package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errAgain says that the attempt which a request has joined ended before the request
// could have the grant.
var errAgain = errors.New("try again")

// leaveTimeout bounds how long a request that gives up waits until the server has
// forgotten it: package dlock promises that a call returns 100 ms after its context.
const leaveTimeout = 80 * time.Millisecond

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	r.TTL = max((r.TTL + time.Millisecond - 1).Truncate(time.Millisecond), minTTL)
	begun := time.Now()
	queued := false
	for {
		a, first, err := b.joinAttempt(ctx, &r, begun, &queued)
		if err != nil {
			return nil, err
		}
		joined := time.Now()
		if first {
			a.start(&r)
		}
		h, err := b.awaitOutcome(ctx, a, &r, joined, &queued)
		if outage := queued && passing(err) && ctx.Err() == nil; !outage && !errors.Is(err, errAgain) {
			return h, err
		}
	}
}

// setQueued tells the Observer of r once that the lock is held. It is called with b.mu held,
// which is free meanwhile.
func (b *Backend) setQueued(r *backend.Request, queued *bool) {
	*queued = true
	b.mu.Unlock()
	defer b.mu.Lock()
	r.Queued()
}

// joinAttempt returns the attempt that r takes part in. If r has started it, first is
// true, and the caller runs it. A request that waits for one of other readers is queued as
// they are.
func (b *Backend) joinAttempt(ctx context.Context, r *backend.Request, begun time.Time, queued *bool) (a *attempt, first bool, err error) {
	key := b.key(r.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.closed {
			return nil, false, backend.ErrClosed
		}
		l := b.lockFor(key)
		switch l.admit(r) {
		case mayJoin:
			l.attempt.join(r)
			return l.attempt, false, nil
		case mustGiveUp:
			return nil, false, backend.ErrHeld
		case mayAsk:
			a, err := b.newAttempt(l, r, begun)
			return a, true, err
		}
		held := l.isHeld()
		if held && r.Wait && !*queued && (l.attempt == nil || !l.attempt.isAbandoned()) {
			b.setQueued(r, queued)
			continue // it may have changed meanwhile
		}
		if err := b.awaitChange(ctx, l, held, time.Time{}); err != nil {
			return nil, false, err
		}
	}
}

// newAttempt starts an attempt at l, unless this client has as many locks as it may.
// It is called with b.mu held.
func (b *Backend) newAttempt(l *localLock, r *backend.Request, begun time.Time) (*attempt, error) {
	if n := b.maxLocks(); n > 0 && len(b.locks) > n {
		b.removeUnused(l)
		return nil, backend.Fail(backend.ErrUnavailable, fmt.Errorf("%w: this client may have %d", ErrLockTable, n))
	}
	a := &attempt{
		backend: b, lock: l, since: begun, started: time.Now(),
		shared: r.Mode == backend.Shared, ttl: r.TTL, lease: leaseOf(r.TTL),
		claim:        mark{set: claim, drop: dropClaim, pause: b.opts.Slice},
		announcement: mark{set: want, drop: dropWant, due: begun.Add(r.TTL / 3), pause: r.TTL / 3},
		retryDelay:   backend.Backoff{Min: 2 * time.Millisecond, Max: 250 * time.Millisecond},
		connectDelay: backend.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second},
		yieldDelay:   backend.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond},
		wake:         make(chan struct{}, 1),
	}
	a.ctx, a.cancel = context.WithCancel(b.ctx)
	l.attempt = a
	a.join(r)
	return a, nil
}

// awaitChange waits until l changes. It fails when ctx ends, which is told as the end of a
// wait for a lock that is held or not, and at limit, if that is not zero, for want of an
// answer. It is called with b.mu held, and returns so.
func (b *Backend) awaitChange(ctx context.Context, l *localLock, held bool, limit time.Time) error {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return backend.WaitEnded(ctx, held)
	case <-after(limit):
		return backend.Fail(backend.ErrUnavailable, errSilent)
	}
}

func (a *attempt) join(r *backend.Request) {
	a.requests++
	if r.Wait {
		a.waiters++
	}
	a.fixed = a.fixed || r.Fixed
}

// leave takes r out of a. If no other request waits, the attempt is cancelled.
func (a *attempt) leave(r *backend.Request) {
	a.requests--
	if r.Wait {
		a.waiters--
	}
	if a.requests == 0 || a.foundHeld && a.waiters == 0 {
		a.cancel()
	}
}

// isAbandoned reports whether nobody wants the lock any more and only the cleanup is
// left.
func (a *attempt) isAbandoned() bool {
	return a.requests == 0 || a.ctx.Err() != nil
}

// awaitOutcome waits until a is done and returns the hold of r.
func (b *Backend) awaitOutcome(ctx context.Context, a *attempt, r *backend.Request, joined time.Time, queued *bool) (*backend.Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !a.isDone() {
		switch {
		case b.closed:
			b.leaveAttempt(ctx, a, r)
			return nil, backend.ErrClosed
		case !r.Wait && a.foundHeld:
			b.leaveAttempt(ctx, a, r)
			return nil, backend.ErrHeld
		}
		if a.foundHeld && !*queued {
			b.setQueued(r, queued)
			continue // it may have changed meanwhile
		}
		var limit time.Time
		if !a.foundHeld {
			limit = joined.Add(backend.FirstAnswer)
		}
		if err := b.awaitChange(ctx, a.lock, false, limit); err != nil && !a.isDone() {
			b.leaveAttempt(ctx, a, r)
			if a.foundHeld || a.grant != nil && r.Wait { // a grant that comes too late ends a wait
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
	return a.grant.newHold(r), nil
}

// leaveAttempt takes r out of a. The last request to leave waits, for leaveTimeout at
// most, until the server has forgotten the attempt: a call that has returned must not
// stand in the queue. The lock may be found held meanwhile. It is called with b.mu
// held, and returns so.
func (b *Backend) leaveAttempt(ctx context.Context, a *attempt, r *backend.Request) {
	a.leave(r)
	if a.requests > 0 {
		return
	}
	ctx, cancel := backend.Detach(ctx, min(a.ttl/2, leaveTimeout))
	defer cancel()
	for !a.isDone() {
		if b.awaitChange(ctx, a.lock, false, time.Time{}) != nil {
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

// contendedTries is how many requests for a key that was found held join the queue
// without a try, before one tries again.
const contendedTries = 128

// maxContended bounds how many keys are remembered as held.
const maxContended = 4096

// isContended reports whether a request for key is to join the queue without a try. It is
// called with b.mu held.
func (b *Backend) isContended(key int64) bool {
	n, is := b.contended[key]
	if n > 1 {
		b.contended[key] = n - 1
	} else {
		delete(b.contended, key)
	}
	return is
}

// noteContention remembers that another client holds key. It is called with b.mu held.
func (b *Backend) noteContention(key int64) {
	if len(b.contended) >= maxContended {
		clear(b.contended)
	}
	b.contended[key] = contendedTries
}

// newHold returns the hold of r, which shares g. It is called with b.mu held.
func (g *grant) newHold(r *backend.Request) *backend.Hold {
	h := &hold{grant: g, request: *r}
	g.holds = append(g.holds, h)
	return &backend.Hold{Request: *r, Token: g.token, Sent: g.sent, Granted: min(r.TTL, g.session.lease()), TellsWanted: !g.shared && !r.Fixed, State: h}
}
