// Package memory keeps locks in the memory of one process, for tests and for
// programs of one process.
//
// # URL
//
// memory:// opens a server of its own; memory://name opens the server of that
// name, which all clients of the process share that name it while one of them
// is open. There are no parameters.
//
// # Guarantees
//
// All promises of package dlock hold between the clients of one server. Other
// processes know nothing of these locks. Nothing waits on anything but
// channels and timers, so that testing/synctest can drive a program through
// minutes of watchdog, loss and queueing in an instant. A [Server] can forget
// a lock or all of them, stop answering, or have a wrong clock, and a [Backend]
// can be cut off or fail a call, so that a program's own tests can see what it
// does on a bad day.
package memory

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Backend is one client's connection to a Server.
type Backend struct {
	server *Server
	link   link // to this client alone
	late   lateness
	onStop func()

	stop   sync.Once
	closed chan struct{}
	gone   bool // as the server knows; guarded by its mutex

	planned   atomic.Bool // failNext or dropReply is set
	mu        sync.Mutex
	failNext  error
	dropReply bool
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Reenterer     = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.Transferer    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.Expirer       = (*Backend)(nil)
	_ backend.TokenRegister = (*Backend)(nil)
)

// New returns a client of s, or of a server of its own if s is nil.
func New(s *Server) *Backend {
	if s == nil {
		s = NewServer()
	}
	return &Backend{server: s, closed: make(chan struct{})}
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	return b.take(ctx, &r, backend.Ballot{})
}

// Vote implements backend.TokenRegister.
func (b *Backend) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	return b.take(ctx, &r, v)
}

func (b *Backend) take(ctx context.Context, r *backend.Request, v backend.Ballot) (*backend.Hold, error) {
	for {
		h, err := b.acquire(ctx, r, v)
		if err == nil || !errors.Is(err, backend.ErrLost) || !r.Wait {
			return h, err
		}
	}
}

// acquire asks once. ErrLost means that a grant ran out before it got here.
func (b *Backend) acquire(ctx context.Context, r *backend.Request, v backend.Ballot) (*backend.Hold, error) {
	sent, up := time.Now(), b.up()
	if err := b.send(ctx, time.Time{}); err != nil {
		return nil, err
	}
	arrived := sent.Sub(b.server.start)
	if !up {
		arrived = b.server.now()
	}
	g, w, err := b.server.acquire(b, r, v, arrived)
	if err != nil {
		return nil, err
	}
	if g == nil && w == nil {
		return nil, backend.ErrHeld
	}
	if g == nil {
		r.Queued()
		if g, err = b.await(ctx, w); err != nil {
			return nil, err
		}
	}
	if err := b.receive(ctx, time.Time{}); err != nil {
		b.server.release(&g.hold)
		return nil, err
	}
	if w != nil {
		now := time.Now()
		if sent = now.Add(-b.server.age(g, now)); now.Sub(sent) >= r.TTL {
			b.server.release(&g.hold)
			return nil, backend.ErrLost
		}
	}
	g.hold.Sent = sent
	return &g.hold, nil
}

// await waits for w to be granted, or leaves the queue.
func (b *Backend) await(ctx context.Context, w *waiter) (*grant, error) {
	var err error
	select {
	case <-w.ready:
		return w.grant, w.err
	case <-ctx.Done():
		err = backend.WaitEnded(ctx, true)
	case <-b.closed:
		err = backend.ErrClosed
	}
	b.server.abandon(w)
	return nil, err
}

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	return b.exchange(ctx, h, func() error { return b.server.release(h) })
}

// ReleaseAll implements backend.BatchReleaser, with one request.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var ttl time.Duration
	for _, h := range holds {
		ttl = max(ttl, h.TTL)
	}
	until := time.Now().Add(ttl)
	outcomes := make([]error, len(holds))
	lost := b.send(ctx, until)
	if lost == nil {
		for i, h := range holds {
			outcomes[i] = b.server.release(h)
		}
		lost = b.receive(ctx, until)
	}
	for i, h := range holds {
		report(h, cmp.Or(lost, outcomes[i]))
	}
}

// Renew implements backend.Renewer.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	sent := time.Now()
	err := b.send(ctx, time.Time{})
	if err != nil {
		for _, h := range holds {
			report(h, err)
		}
		return
	}
	answers := make([]error, len(holds))
	for i, h := range holds {
		answers[i] = b.server.renew(h)
	}
	late := b.late.wait(ctx, time.Time{}, b.closed)
	for i, h := range holds {
		switch {
		case late != nil:
			answers[i] = late
		case answers[i] == nil:
			h.Sent = sent
		}
		report(h, answers[i])
	}
}

// Reenter implements backend.Reenterer.
func (b *Backend) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	return b.exchange(ctx, h, func() error { return b.server.reenter(h, entries, seq) })
}

// RaiseToken implements backend.TokenRegister.
func (b *Backend) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return b.exchange(ctx, h, func() error { return b.server.raise(h, token) })
}

// Ping reports whether the server answers.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.send(ctx, time.Time{}); err != nil {
		return err
	}
	return b.reach(ctx, time.Time{})
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	return b.exchange(ctx, h, func() error { return b.server.downgrade(h) })
}

// Transfer implements backend.Transferer.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) { return b.server.transfer(h) }

// Expire implements backend.Expirer.
func (b *Backend) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	return b.exchange(ctx, h, func() error { return b.server.endIn(h, d) })
}

// Close implements backend.Backend.
func (b *Backend) Close(context.Context) error {
	b.stop.Do(func() {
		close(b.closed)
		b.server.forget(b)
		if b.onStop != nil {
			b.onStop()
		}
	})
	return nil
}

// exchange does what a call about h asks of the server, with a request before
// and a reply after that may each be lost. It lasts no longer than h.TTL.
func (b *Backend) exchange(ctx context.Context, h *backend.Hold, do func() error) error {
	until := time.Now().Add(h.TTL)
	if err := b.send(ctx, until); err != nil {
		return err
	}
	err := do()
	if lost := b.receive(ctx, until); lost != nil {
		return lost
	}
	return err
}
