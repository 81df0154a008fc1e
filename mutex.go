package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Mutex is a lock of one name. It has no state of its own: any number of
// them, in any number of processes, are one lock. Make one with Client.Mutex;
// every call on a zero Mutex fails.
type Mutex struct {
	l *lock
}

var _ Locker = (*Mutex)(nil)

// Lock waits until the lock is held or ctx is done; see Locker. It fails with
// ErrHeld and ctx's cause if ctx is done while the lock is held by another,
// and with ErrUnavailable if the server could not be asked.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock().acquire(ctx, request{"lock", backend.Exclusive, true})
}

// TryLock takes the lock if it is free and nobody waits for it. Otherwise it
// fails with ErrHeld.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock().acquire(ctx, request{"trylock", backend.Exclusive, false})
}

// Held returns the live lease on this lock that ctx was made from, if there is
// one.
func (m *Mutex) Held(ctx context.Context) (*Lease, bool) {
	l := m.lock()
	if l.client == nil || ctx == nil {
		return nil, false
	}
	in := chainOf(ctx).find(l.client, l.fullName)
	if in == nil {
		return nil, false
	}
	return in.lease, true
}

// Name returns the name the lock was made with.
func (m *Mutex) Name() string { return m.lock().name() }

func (m *Mutex) lock() *lock {
	if m == nil || m.l == nil {
		return &lock{err: backend.Fail(ErrInvalidConfig, errZeroMutex)}
	}
	return m.l
}

// An RWMutex is a lock of one name that readers can share. Everything said of
// Mutex holds for it too.
type RWMutex struct {
	Mutex
}

var _ RWLocker = (*RWMutex)(nil)

// RLock is Lock for a reader; see RWLocker.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.shared().acquire(ctx, request{"rlock", backend.Shared, true})
}

// TryRLock is TryLock for a reader.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.shared().acquire(ctx, request{"tryrlock", backend.Shared, false})
}

// RLocker returns a Locker whose Lock and TryLock are RLock and TryRLock of m.
func (m *RWMutex) RLocker() Locker { return (*rlocker)(m) }

func (m *RWMutex) shared() *lock {
	if m == nil {
		return (*Mutex)(nil).lock()
	}
	return m.lock()
}

type rlocker RWMutex

func (r *rlocker) Lock(ctx context.Context) (*Lease, error)    { return (*RWMutex)(r).RLock(ctx) }
func (r *rlocker) TryLock(ctx context.Context) (*Lease, error) { return (*RWMutex)(r).TryRLock(ctx) }

// A lock is what a Mutex stands for: a name on a client, with its settings.
type lock struct {
	*settings
	client   *Client
	fullName string // with the client's prefix
	err      error  // what is wrong with name or settings
}

// name is the one that l was made with.
func (l *lock) name() string {
	if l.client == nil {
		return l.fullName
	}
	return l.fullName[len(l.client.opts.Prefix):]
}

// A request is one call on a lock.
type request struct {
	op   string
	mode backend.Mode
	wait bool
}

func (c *Client) newLock(name string, s *settings) *lock {
	if c == nil || c.backend == nil {
		return &lock{fullName: name, err: backend.Fail(ErrInvalidConfig, errZeroClient)}
	}
	l := &lock{settings: s, client: c, fullName: c.opts.Prefix + name}
	l.err = backend.Join(checkName(name, l.fullName), s.err)
	return l
}

// settings are those of a lock that is made with o.
func (c *Client) settings(o []Option) *settings {
	if c == nil || c.backend == nil {
		return nil
	}
	if len(o) == 0 {
		return &c.defaults
	}
	return newSettings(c.opts.ttl(), c.minTTL, o)
}

func checkName(name, fullName string) error {
	switch {
	case name == "":
		return backend.Fail(ErrInvalidName, errors.New("empty"))
	case len(fullName) > backend.MaxName:
		return backend.Fail(ErrInvalidName, fmt.Errorf("%d bytes with the prefix, more than %d", len(fullName), backend.MaxName))
	}
	return nil
}

// acquire enters the lock for r: again, if ctx was made from a lease on it,
// else anew.
func (l *lock) acquire(ctx context.Context, r request) (*Lease, error) {
	switch {
	case l.err != nil:
		return nil, newError(r.op, l.name(), l.err)
	case ctx == nil:
		return nil, newError(r.op, l.name(), errNilContext)
	case ctx.Err() != nil:
		return nil, ctxError(r.op, l.name(), ctx)
	}
	f := l.client.opts.Hooks.Acquired
	var start time.Time
	if f != nil {
		start = time.Now()
	}
	if r.wait && l.maxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = backend.Bound(ctx, l.maxWait)
		defer cancel()
	}
	outer := chainOf(ctx).find(l.client, l.fullName)
	if ctx.Err() != nil { // for that of a lease that has just ended
		return nil, ctxError(r.op, l.name(), ctx)
	}
	lease, err := l.enter(ctx, outer, r)
	if err != nil {
		return nil, newError(r.op, l.name(), err)
	}
	if f != nil {
		lease.announce(ctx, f, Event{
			Name:   l.name(),
			Shared: r.mode == backend.Shared,
			Token:  lease.of.token(),
			Nested: outer != nil,
			Waited: time.Since(start),
		})
	}
	return lease, nil
}

// announce calls the hook Acquired. If that panics nobody has the lease: it ends.
func (l *Lease) announce(ctx context.Context, f func(Event), e Event) {
	called := false
	defer func() {
		if !called {
			_ = l.Unlock(ctx)
		}
	}()
	f(e)
	called = true
}

func (l *lock) enter(ctx context.Context, outer *chain, r request) (*Lease, error) {
	if outer == nil {
		return l.take(ctx, r)
	}
	return l.reenter(ctx, outer.entry, r)
}

// take asks the backend for the lock once it is this goroutine's turn.
func (l *lock) take(ctx context.Context, r request) (*Lease, error) {
	c, n := l.client, l.notice(r)
	door, lease, waited, err := c.knock(ctx, l, r, n)
	if lease != nil || err != nil {
		return lease, err
	}
	h := &hold{lock: l, door: door}
	if err = c.keeper.Admit(ctx); err == nil {
		err = h.ask(ctx, r, n, backend.FirstAnswer-waited)
	}
	if err != nil {
		c.leave(h, r.mode)
	} else if lease, err = h.begin(); err != nil {
		h.refuse()
	}
	if p := n.panicked(); p != nil {
		if err == nil {
			c.undo(ctx, func(ctx context.Context) { _ = lease.Unlock(ctx) })
		}
		panic(p.value)
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// ask asks the backend for h. The first answer must come within limit.
func (h *hold) ask(ctx context.Context, r request, n *notice, limit time.Duration) (err error) {
	l, c := h.lock, h.lock.client
	ttl, fixed := l.lease()
	q := within(ctx, limit)
	defer q.end()
	h.question = q
	h.item.Hold, err = c.backend.Acquire(q, backend.Request{
		Name:     l.fullName,
		ID:       backend.ID{Client: c.id, Seq: c.lastID.Add(1)},
		Label:    c.opts.Label,
		Mode:     r.mode,
		TTL:      ttl,
		Fixed:    fixed,
		Wait:     r.wait,
		Observer: n.observer(h),
	})
	return err
}
