// Package zk keeps locks on ZooKeeper, from version 3.4 on.
//
// # URL
//
//	zk://[user:password@]host[:port][,host[:port]...][/root][?parameters]
//
// The port is 2181 unless given. Locks are kept below root, /dlock unless
// given, which belongs to this package alone. With a user, the client
// authenticates by the digest scheme. The parameters are
//
//	session   the session timeout to ask for, the client's TTL unless given
//	ensemble  true if there are several servers behind the one host given
//	strict    true to give up every lock as soon as the connection breaks
//	tls       true to encrypt, as a TLS configuration in the options does too
//	acl       creator: only the same user may touch what this client makes,
//	          which is the default with a user; open: everybody may, which is
//	          the default without
//
// # Guarantees
//
// A client has one session for all its locks, and a hold lasts as long as the
// session. That is why WithTTL cannot shorten or prolong what the server does
// for one lock: the lease of every hold is the session timeout, which the
// server grants within bounds of its own, 2 to 20 of its ticks by default.
//
// A hold is lost when the server says that the session has expired or the
// hold's node is gone, and in any case when the client has not heard from the
// leader for the session timeout. A connection that breaks and comes back
// within that time costs no lock, on another server of the ensemble neither.
// The node of a hold is watched from its first renewal on, which takes a request
// for each. After that one request a renewal proves all holds together.
//
// With several hosts, or ensemble=true, the client assumes an ensemble. There a server
// tells the leader only twice a tick which sessions it has heard of, and takes
// what it has not told with it when it dies. The lease is counted from what the
// leader knows, for ticks of up to 2 s.
//
// Waiting is first come, first served, with a watch on one node: nobody polls
// and a release wakes one writer, or the readers that are next. The token is
// the id of the transaction that queued the holder, times 4096; a client that
// was alone with a lock lately goes on from its token before. It grows across
// restarts, and begins anew only if the ensemble loses its data.
//
// # Wire format
//
// A lock is a container node named after it below the root; on servers before
// 3.5.3, which have none, it is a plain node that stays. A client queues by an
// ephemeral sequential child, <guid>-w-<sequence> to write, <guid>-r-<sequence>
// to read, and sets the data of the lock's node in the same transaction, as does a
// downgrade, which replaces the writer's child by a reader's of the same guid,
// sequence and rank. The data of a child is its rank, 0 for its own, and the
// client's label.
//
// Two requests do not set the data of the lock's node. A reader that joins others
// relies on that of the first. A writer that was alone there several times makes
// its child only, and removes it unless it finds by the sequence that it is alone
// again. Who has looked at the children before it makes one of its own has to see
// by the sequence whether there were others between.
//
// Who has had to wait for the lock sets the data of
// its child as it deletes it: that tells the next in line that the lock is free,
// which a deletion alone does not. Nobody else may set it, therefore. Children
// with other names are passed over.
//
// # Permissions
//
// The client reads, creates, writes and deletes below the root, and creates the
// root and what is above it. Everything it creates has the ACL of the acl
// parameter or of Options.ACL.
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

	mu       sync.Mutex
	current  *session // nil before the first and after Close
	sessions sync.WaitGroup
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Renewer    = (*Backend)(nil)
	_ backend.Downgrader = (*Backend)(nil)
	_ backend.Transferer = (*Backend)(nil)
)

// Connect returns a client of the ensemble whose members are servers, each as
// host:port. A nil *Options is the same as an empty one. Connect opens a
// session, checks that the root can be read, and gives up after ten seconds or
// when ctx is done.
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
	opts.Ensemble = opts.Ensemble || len(servers) > 1
	b := &Backend{opts: opts, servers: slices.Clone(servers), closed: make(chan struct{})}
	ctx, cancel := backend.Bound(ctx, connectLimit)
	defer cancel()
	if err := b.check(ctx); err != nil {
		cancel()
		_ = b.Close(ctx)
		return nil, err
	}
	return b, nil
}

// connectLimit is the longest time that Connect takes.
const connectLimit = 10 * time.Second

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
		err = s.persist(func() error { _, _, err := s.conn.Get(b.opts.Root); return err })
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
		b.sessions.Go(b.current.run)
	}
	return b.current, nil
}

// inUse returns the session that is ready, or nil.
func (b *Backend) inUse() *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.current; s != nil && s.isReady() {
		return s
	}
	return nil
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

// Acquire implements backend.Backend. A request that is never answered fails
// after the session timeout, or ten seconds if that is shorter. A caller that can
// be called away does not ask by itself: the driver does not return early.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	a, began, limit := newAttempt(b, r), time.Now(), max(b.opts.SessionTimeout, connectLimit)
	if ctx.Done() == nil {
		if h := a.grab(limit); h != nil {
			return h, nil
		}
	}
	if !a.start() {
		return nil, backend.ErrClosed
	}
	patience := time.NewTimer(limit - time.Since(began))
	defer patience.Stop()
	for {
		select {
		case <-a.done:
			return a.hold, a.err
		case <-b.closed:
			return a.leave(backend.ErrClosed)
		case <-ctx.Done():
			return a.leave(backend.WaitEnded(ctx, a.isQueued(moment)))
		case <-patience.C:
			if !a.isQueued(0) {
				return a.leave(backend.Fail(backend.ErrUnavailable, errNoAnswer))
			}
		}
	}
}

// moment is how long a caller that leaves waits for an answer that may be on
// its way, so that it can say whether the lock was held.
const moment = 20 * time.Millisecond

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	held, began := h.State.(*held), time.Now()
	if held.begin() {
		if ctx.Done() == nil && held.session.answersWithin(h.TTL) {
			held.releaseNow()
		} else {
			held.releaseLater()
		}
	}
	select {
	case <-held.released:
		return held.err
	default:
	}
	ctx, cancel := backend.Bound(ctx, h.TTL-time.Since(began))
	defer cancel()
	select {
	case <-held.released:
		return held.err
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
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

// Close implements backend.Backend: the end of the session is the end of its
// nodes.
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
		select {
		case <-s.gone:
		case <-ctx.Done():
			s.cut()
		}
	}
	err := b.janitor.Close(context.WithoutCancel(ctx)) // its jobs end with the session
	b.sessions.Wait()
	return err
}
