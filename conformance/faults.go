package conformance

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Faults disturbs the calls of one client of any backend, in this process and
// without a network. What the server says unasked comes through. NewFaults makes
// it. Its methods are safe for concurrent use.
type Faults struct {
	inner   backend.Backend
	outer   backend.Backend
	closed  chan struct{}
	closing sync.Once
	undoing backend.Janitor

	mu      sync.Mutex
	cut     bool
	delay   time.Duration
	drop    bool
	fail    error
	changed chan struct{} // closed and replaced with cut and delay
}

// errDropped is the cause of a failure that DropReply asked for.
var errDropped = errors.New("the reply was lost")

// NewFaults returns b without a fault so far.
func NewFaults(b backend.Backend) *Faults {
	f := &Faults{inner: b, closed: make(chan struct{}), changed: make(chan struct{})}
	f.outer = Wrap(b, Layer{
		Acquire: f.acquire, Release: f.exchange, Renew: f.renew, Reenter: f.exchange, Downgrade: f.exchange,
		Expire: f.exchange, Inspect: f.inspect, Names: f.names, Break: f.breakHold, Ping: f.ping, Close: f.close,
	})
	return f
}

// Backend returns the backend that a client is to use.
func (f *Faults) Backend() backend.Backend { return f.outer }

// Disturb gives p the faults of f: [Peer.Cut], [Peer.Delay] and [Peer.DropReply].
func (f *Faults) Disturb(p *Peer) {
	p.Cut, p.Delay, p.DropReply = f.Cut, f.Delay, f.DropReply
}

// Cut keeps calls from getting an answer until heal. One that has not been made
// by then is made when it is healed, unless its caller has gone.
func (f *Faults) Cut() (heal func()) {
	f.change(func() { f.cut = true })
	return func() { f.change(func() { f.cut = false }) }
}

// Delay holds back answers for d each. Zero ends it, and lets through what is held
// back.
func (f *Faults) Delay(d time.Duration) {
	f.change(func() { f.delay = d })
}

// DropReply makes the next call but Renew take effect and fail all the same.
func (f *Faults) DropReply() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop = true
}

// FailNext makes the next call fail with err before it takes effect.
func (f *Faults) FailNext(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *Faults) change(apply func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	apply()
	close(f.changed)
	f.changed = make(chan struct{})
}

// out carries a request to the backend.
func (f *Faults) out(ctx context.Context) error {
	f.mu.Lock()
	err := f.fail
	f.fail = nil
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.pass(ctx, false, time.Now())
}

// back carries an answer of the given time to the caller.
func (f *Faults) back(ctx context.Context, answered time.Time) error {
	f.mu.Lock()
	drop := f.drop
	f.drop = false
	f.mu.Unlock()
	if drop {
		return backend.Fail(backend.ErrUnavailable, errDropped)
	}
	return f.pass(ctx, true, answered)
}

// pass returns when nothing keeps a message any more.
func (f *Faults) pass(ctx context.Context, late bool, since time.Time) error {
	for {
		f.mu.Lock()
		cut, rest, changed := f.cut, time.Duration(0), f.changed
		if late {
			rest = f.delay - time.Since(since)
		}
		f.mu.Unlock()
		if !cut && rest <= 0 {
			return nil
		}
		var due <-chan time.Time
		if !cut {
			due = time.After(rest)
		}
		select {
		case <-due:
		case <-changed:
		case <-f.closed:
			return backend.ErrClosed
		case <-ctx.Done():
			return backend.WaitEnded(ctx, false)
		}
	}
}

func (f *Faults) acquire(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
	if err := f.out(ctx); err != nil {
		return nil, err
	}
	h, err := next(ctx, r)
	if err != nil {
		return nil, errors.Join(err, f.pass(ctx, true, time.Now()))
	}
	if err := f.back(ctx, time.Now()); err != nil {
		f.undo(h)
		return nil, err
	}
	if h.Granted > 0 && time.Since(h.Sent) >= h.Granted {
		f.undo(h)
		return nil, backend.Fail(backend.ErrUnavailable, errors.New("the grant ran out before it was known"))
	}
	return h, nil
}

// undo ends a hold that nobody gets to know of.
func (f *Faults) undo(h *backend.Hold) {
	f.undoing.Do(h.TTL, func(ctx context.Context) error {
		err := f.inner.Release(ctx, h)
		if errors.Is(err, backend.ErrLost) {
			return nil
		}
		return err
	})
}

// exchange makes a call about a hold, within its TTL.
func (f *Faults) exchange(ctx context.Context, h *backend.Hold, next HoldFunc) error {
	ctx, cancel := backend.Bound(ctx, h.TTL)
	defer cancel()
	if err := f.out(ctx); err != nil {
		return err
	}
	err := next(ctx, h)
	if lost := f.back(ctx, time.Now()); lost != nil {
		return lost
	}
	return err
}

func (f *Faults) renew(ctx context.Context, holds []*backend.Hold, report ReportFunc, next RenewFunc) {
	type proof struct {
		sent    time.Time
		granted time.Duration
	}
	before := make(map[*backend.Hold]proof, len(holds))
	for _, h := range holds {
		before[h] = proof{h.Sent, h.Granted}
	}
	if err := f.out(ctx); err != nil {
		for _, h := range holds {
			report(h, err)
		}
		return
	}
	var mu sync.Mutex
	answers := make(map[*backend.Hold]error, len(holds))
	next(ctx, holds, func(h *backend.Hold, err error) {
		mu.Lock()
		defer mu.Unlock()
		answers[h] = err
	})
	late := f.pass(ctx, true, time.Now())
	for _, h := range holds {
		if late != nil {
			h.Sent, h.Granted = before[h].sent, before[h].granted
			report(h, late)
			continue
		}
		report(h, answers[h])
	}
}

// ask makes a call that is about no hold of the client's own.
func (f *Faults) ask(ctx context.Context, next func() error) error {
	if err := f.out(ctx); err != nil {
		return err
	}
	err := next()
	if lost := f.back(ctx, time.Now()); lost != nil {
		return lost
	}
	return err
}

func (f *Faults) inspect(ctx context.Context, name string, next InspectFunc) (s backend.Snapshot, err error) {
	err = f.ask(ctx, func() (err error) {
		s, err = next(ctx, name)
		return err
	})
	return s, err
}

func (f *Faults) names(ctx context.Context, prefix string, next NamesFunc) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := f.ask(ctx, func() error { return nil }); err != nil {
			yield("", err)
			return
		}
		next(ctx, prefix)(yield)
	}
}

func (f *Faults) breakHold(ctx context.Context, name string, token uint64, next BreakFunc) error {
	return f.ask(ctx, func() error { return next(ctx, name, token) })
}

func (f *Faults) ping(ctx context.Context, next PingFunc) (version string, err error) {
	err = f.ask(ctx, func() (err error) {
		version, err = next(ctx)
		return err
	})
	return version, err
}

func (f *Faults) close(ctx context.Context, next func(context.Context) error) error {
	f.closing.Do(func() { close(f.closed) })
	return errors.Join(f.undoing.Close(ctx), next(ctx))
}
