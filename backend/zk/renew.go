package zk

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Renew implements backend.Renewer: one request renews all holds of a session.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	backend.ForEachGroup(holds, sessionOf, func(s *session, group []*backend.Hold) { s.renewAll(ctx, group, report) })
}

func (s *session) renewAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	l, err := s.renewLease(s.grantedTimeout()/15, ctx.Done())
	broken, held := sync.OnceValue(s.broken), []*hold(nil)
	for _, h := range holds {
		own := h.State.(*hold)
		switch {
		case errors.Is(err, errSessionEnded):
			report(h, backend.Fail(backend.ErrLost, s.endCause()))
		case errors.Is(err, errCallerLeft):
			report(h, backend.WaitEnded(ctx, false))
		case err != nil:
			report(h, backend.Fail(backend.ErrUnavailable, err))
		case !s.isHeld(own):
			report(h, backend.Fail(backend.ErrLost, own.removalCause(broken())))
		default:
			h.Sent, h.Granted = l.sent, l.until.Sub(l.sent)
			held = append(held, own)
			report(h, nil)
		}
	}
	s.watchHolds(held)
}

// A lease says how long the server keeps the session at least.
type lease struct {
	sent  time.Time // when the last request was sent that the leader has answered
	until time.Time
}

func (l lease) left() time.Duration { return l.until.Sub(l.sent) - backend.Since(l.sent) }

// relayTime is how long a member of an ensemble takes at most to tell the leader which
// sessions it has heard of: half a tick of up to 2 s.
const relayTime = time.Second

// extendLease notes that the leader has answered a request that was sent then. In an
// ensemble the lease counts from an earlier request, of which the leader has heard. If no
// later one is known, the lease ends when it did, but it was proven anew: the keeper counts
// from then, and would otherwise renew again at once.
func (s *session) extendLease(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := sent
	if !s.backend.opts.Standalone {
		if !s.connection.established {
			return // the answer came on the connection before
		}
		from = s.connection.lastSend(sent.Add(-min(relayTime, s.timeout/4)))
	}
	if from.IsZero() {
		return
	}
	if sent.After(s.lease.sent) {
		s.lease.sent = sent
	}
	if until := from.Add(s.timeout); until.After(s.lease.until) {
		s.lease.until = until
	}
}

// currentLease returns the lease, and whether that was renewed no longer than age ago.
// It is called with s.mu held.
func (s *session) currentLease(age time.Duration) (l lease, fresh bool, err error) {
	if s.ctx.Err() != nil {
		return s.lease, false, errSessionEnded
	}
	return s.lease, backend.Since(s.lease.sent) <= age && (s.connected || !s.backend.opts.Strict), nil
}

// A renewal is one request that renews the lease. All who need it at the same time share
// it.
type renewal struct {
	done chan struct{}
	err  error // set before done is closed
}

// renewLease renews the lease unless that was done no longer than age ago. It returns
// errCallerLeft when left is closed.
func (s *session) renewLease(age time.Duration, left <-chan struct{}) (lease, error) {
	s.mu.Lock()
	l, fresh, err := s.currentLease(age)
	if fresh || err != nil {
		s.mu.Unlock()
		return l, err
	}
	r := s.renewal
	if r == nil {
		r = &renewal{done: make(chan struct{})}
		s.renewal = r
		s.backend.janitor.Go(func(context.Context) { s.sendRenewal(r) })
	}
	s.mu.Unlock()
	select {
	case <-r.done:
	case <-s.ctx.Done():
		return l, errSessionEnded
	case <-left:
		return l, errCallerLeft
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease, r.err
}

// sendRenewal sends a request that the leader answers. A read is no such request: a
// member answers reads after it has lost the leader.
func (s *session) sendRenewal(r *renewal) {
	sent := time.Now()
	_, r.err = s.client.Sync(s.backend.opts.Root)
	if r.err == nil {
		s.extendLease(sent)
	}
	s.mu.Lock()
	s.renewal = nil
	s.mu.Unlock()
	close(r.done)
}

// grantedTimeout is the session timeout that the server has granted.
func (s *session) grantedTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}
