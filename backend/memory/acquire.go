package memory

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	return b.Vote(ctx, r, backend.Ballot{})
}

// Vote implements backend.TokenRegister.
func (b *Backend) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	for {
		h, err := b.acquire(ctx, &r, v)
		// Not errors.Is: ctx may have ended because another lock was lost, and err then wraps
		// that loss.
		if err != backend.ErrLost || !r.Wait {
			return h, err
		}
	}
}

// acquire asks once. ErrLost means that a grant ran out before it got here.
func (b *Backend) acquire(ctx context.Context, r *backend.Request, v backend.Ballot) (*backend.Hold, error) {
	sent := time.Now()
	if err := b.send(ctx); err != nil {
		return nil, err
	}
	h, w, err := b.server.acquire(b, r, v)
	if err != nil {
		return nil, err
	}
	if w != nil {
		b.server.tellHolders(w)
		r.Queued()
		if h, err = b.awaitGrant(ctx, w); err != nil {
			return nil, err
		}
	}
	if err := b.receive(ctx); err != nil {
		_ = b.server.release(&h.hold)
		if w != nil && ctx.Err() != nil {
			err = backend.WaitEnded(ctx, true)
		}
		return nil, err
	}
	if w != nil {
		if sent = b.server.start.Add(h.since); time.Since(sent) >= r.TTL {
			_ = b.server.release(&h.hold)
			return nil, backend.ErrLost
		}
		b.server.tellGranted(h)
	}
	h.hold.Sent = sent
	return &h.hold, nil
}

// awaitGrant waits for w to be granted, or leaves the queue.
func (b *Backend) awaitGrant(ctx context.Context, w *waiter) (*hold, error) {
	var err error
	select {
	case <-w.ready:
		return w.hold, w.err
	case <-ctx.Done():
		err = backend.WaitEnded(ctx, true)
	case <-b.closed:
		err = backend.ErrClosed
	}
	b.server.leaveQueue(w)
	return nil, err
}

// acquire grants r, or queues it, or reports ErrHeld if it must not wait.
func (s *Server) acquire(b *Backend, r *backend.Request, v backend.Ballot) (*hold, *waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if err := s.checkReady(b, v, now); err != nil {
		return nil, nil, err
	}
	l := s.locks[r.Name]
	if l == nil {
		l = &lock{}
		s.locks[r.Name] = l
		s.most = max(s.most, len(s.locks))
	}
	l.removeExpired(now)
	if len(l.queue) == 0 && l.isOpen(r.Mode) {
		return s.grant(l, b, r, v, now), nil, nil
	}
	defer s.grantNext(r.Name, l, now)
	switch {
	case r.Wait:
	case v.Rejoin > 0 && len(l.readers) > 0 && l.isOpen(r.Mode): // on one of several servers a writer waits
		return nil, nil, backend.ErrBehindWriter
	default:
		return nil, nil, backend.ErrHeld
	}
	w := &waiter{request: *r, ballot: v, client: b, since: now, ready: make(chan struct{})}
	l.queue = append(l.queue, w)
	return nil, w, nil
}

// tellHolders tells the other clients that hold the lock that w waits for it.
func (s *Server) tellHolders(w *waiter) {
	s.mu.Lock()
	var others []backend.Observer
	if l := s.locks[w.request.Name]; l != nil && w.hold == nil {
		for _, h := range l.holders() {
			if o := h.hold.Observer; o != nil && h.client != w.client {
				others = append(others, o)
			}
		}
	}
	s.mu.Unlock()
	for _, o := range others {
		o.Wanted()
	}
}

// tellGranted tells h, which was granted from the queue, that other clients waited behind it
// before it held the lock.
func (s *Server) tellGranted(h *hold) {
	s.mu.Lock()
	l := s.locks[h.hold.Name]
	wanted := l != nil && slices.ContainsFunc(l.queue, func(w *waiter) bool { return w.client != h.client })
	s.mu.Unlock()
	if o := h.hold.Observer; o != nil && wanted {
		o.Wanted()
	}
}

// checkReady reports whether the server serves b, and remembers as much as v asks
// for.
func (s *Server) checkReady(b *Backend, v backend.Ballot, now time.Duration) error {
	switch {
	case b.gone:
		return backend.ErrClosed
	case v.Rejoin == 0:
		return nil
	}
	if s.since == 0 {
		s.since = max(now, 1)
	}
	if in := v.Rejoin - (now - s.since); in > 0 {
		return &backend.NotReadyError{In: in}
	}
	return nil
}

// leaveQueue takes w out of the queue, or gives back what it was granted
// meanwhile.
func (s *Server) leaveQueue(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.err != nil {
		return // it is in no queue any more
	}
	if l := s.locks[w.request.Name]; l != nil {
		if w.hold != nil {
			l.remove(w.hold)
		}
		l.queue = slices.DeleteFunc(l.queue, func(other *waiter) bool { return other == w })
		s.grantNext(w.request.Name, l, s.now())
	}
}
