package zk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Backend is one client of a ZooKeeper ensemble.
type Backend struct {
	opts    Options
	servers []string
	janitor backend.Janitor
	closed  chan struct{}
	plain   atomic.Bool // the server has no container nodes

	mu      sync.Mutex
	current *session // nil before the first and after Close
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.Transferer    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.Examiner      = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// Connect returns a client of the ensemble whose members are servers, each as
// host:port. A nil *Options is the same as an empty one. Connect opens a
// session, looks at the root, and gives up after backend.FirstAnswer or when ctx is
// done.
//
// There is no way to use a Conn that the program has already: it tells neither
// the session timeout that was granted nor, in time, that the session has
// expired, and it runs requests of an expired session on the next.
func Connect(ctx context.Context, servers []string, o *Options) (*Backend, error) {
	if len(servers) == 0 {
		return nil, backend.Fail(backend.ErrInvalidConfig, errors.New("no servers"))
	}
	if o == nil {
		o = &Options{}
	}
	opts, err := o.complete()
	if err != nil {
		return nil, err
	}
	opts.Standalone = opts.Standalone && len(servers) == 1
	b := &Backend{opts: opts, servers: slices.Clone(servers), closed: make(chan struct{})}
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	if err := b.check(ctx); err != nil {
		cancel()
		go b.Close(ctx) // the driver takes a second to end a connection that is not open
		return nil, backend.At(servers, err)
	}
	if o.ACL == nil && o.Credentials == nil {
		opts.Logger.Warn("dlock: zookeeper: without a user, everybody who reaches the server may take locks away")
	}
	return b, nil
}

// check waits for a session and reads the root with it. One that expires before
// is followed by another: it was not the server that failed, but this machine or
// the network that was too slow for the session timeout.
func (b *Backend) check(ctx context.Context) error {
	return b.within(ctx, func() error {
		var pause backend.Backoff
		for {
			err := b.readRoot(ctx)
			if !errors.Is(err, errExpired) || !backend.Sleep(ctx, pause.Next()) {
				return kindOf(err)
			}
		}
	})
}

func (b *Backend) readRoot(ctx context.Context) error {
	s, err := b.session()
	if err != nil {
		return err
	}
	if err = s.await(ctx.Done()); err == nil {
		err = s.inspectRoot()
	}
	if errors.Is(err, errOver) {
		err = s.whyOver()
	}
	return err
}

// session returns the session that new requests are to use, and begins one if
// the last is over.
func (b *Backend) session() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.closed:
		return nil, backend.ErrClosed
	default:
	}
	if b.current == nil || b.current.isOver() {
		b.current = newSession(b)
		b.janitor.Go(b.current.run)
	}
	return b.current, nil
}

// within runs f, which blocks no longer than its session lasts, and returns
// its error, or when ctx is done that of an answer that did not come.
func (b *Backend) within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !b.janitor.Go(func(context.Context) { done <- f() }) {
		return backend.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	a := newAttempt(b, r)
	if !a.start() {
		return nil, backend.ErrClosed
	}
	patience := time.NewTimer(backend.FirstAnswer)
	defer patience.Stop()
	for {
		select {
		case <-a.done:
			return a.hold, a.err
		case <-b.closed:
			return a.leave(backend.ErrClosed)
		case <-ctx.Done():
			h, err := a.leave(backend.WaitEnded(ctx, a.isQueued(moment)))
			a.awaitEnd(moment)
			return h, backend.At(b.servers, err)
		case <-patience.C:
			if !a.isQueued(0) {
				return a.leave(backend.At(b.servers, backend.Fail(backend.ErrUnavailable, errNoAnswer)))
			}
		}
	}
}

// moment is how long a caller that leaves waits for an answer that may be on its
// way, so that it can say whether the lock was held, and for its place in the queue
// to be given up.
const moment = 20 * time.Millisecond

// Release implements backend.Backend. It takes no longer than a session lasts, which
// is what the server grants in place of a TTL.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	held := h.State.(*held)
	held.release()
	ctx, cancel := backend.Bound(ctx, held.session.leaseTime())
	defer cancel()
	return backend.At(b.servers, held.outcome(ctx))
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	return b.within(ctx, h.State.(*held).downgrade)
}

// Transfer implements backend.Transferer. Whoever is granted later has a node of
// a later transaction, and with it a later block of tokens.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) { return backend.NextInBlock(h, tokens) }

// Renew implements backend.Renewer: one request proves all holds of a session.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	of := make(map[*session][]*backend.Hold, 1)
	for _, h := range holds {
		s := h.State.(*held).session
		of[s] = append(of[s], h)
	}
	for s, holds := range of {
		s.renew(ctx, holds, report)
	}
}

// Close implements backend.Backend: the end of the session is the end of its nodes.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	s := b.current
	b.current = nil
	select {
	case <-b.closed:
		b.mu.Unlock()
		return nil
	default:
		close(b.closed)
	}
	b.mu.Unlock()
	if s != nil {
		s.end(backend.ErrClosed)
		defer context.AfterFunc(ctx, s.cut)()
	}
	return b.janitor.Close(ctx)
}
