package zk

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A proof says until when the server keeps the session at least.
type proof struct {
	sent  time.Time // when the request was sent that proved it
	until time.Time
}

// left is how long the server still keeps the session at least.
func (p proof) left() time.Duration { return p.until.Sub(p.sent) - since(p.sent) }

// since is the time that has passed since t by the clock that has moved on further:
// the monotonic one stands still while the machine sleeps.
func since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// relay is how long a member of an ensemble may take to tell the leader of
// which sessions it has heard: half a tick of up to 2 s.
const relay = time.Second

// proved notes that the leader has answered a request sent at sent.
func (s *session) proved(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := sent
	if !s.b.opts.Standalone {
		if !s.link.greeted {
			return // the answer came on the link before, and nobody has confirmed this one
		}
		known = s.link.lastSend(sent.Add(-min(relay, s.timeout/4)))
	}
	if known.IsZero() {
		return
	}
	if until := known.Add(s.timeout); until.After(s.proof.until) {
		s.proof = proof{sent: sent, until: until}
	}
}

// A beat is one request that proves the session, for everybody who asks
// meanwhile.
type beat struct {
	done chan struct{} // closed when err is set
	err  error
}

// known returns the last proof if it is no older than age. The error is
// errOver if the session is.
func (s *session) known(age time.Duration) (p proof, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastProof(age)
}

// lastProof is known, with s.mu held.
func (s *session) lastProof(age time.Duration) (p proof, fresh bool, err error) {
	if s.cause != nil {
		return s.proof, false, errOver
	}
	return s.proof, since(s.proof.sent) <= age && (s.connected || !s.b.opts.Strict), nil
}

// prove returns a proof no older than age. It returns early, with errLeft, when
// left is closed.
func (s *session) prove(age time.Duration, left <-chan struct{}) (proof, error) {
	s.mu.Lock()
	p, fresh, err := s.lastProof(age)
	if fresh || err != nil {
		s.mu.Unlock()
		return p, err
	}
	b := s.beat
	if b == nil {
		b = &beat{done: make(chan struct{})}
		s.beat = b
		s.b.janitor.Go(func(context.Context) { s.knock(b) })
	}
	s.mu.Unlock()
	select {
	case <-b.done:
	case <-s.over:
		return p, errOver
	case <-left:
		return p, errLeft
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proof, b.err
}

// knock asks the leader for a sign of life. A read would do for a single server
// only: a member that has lost its leader still answers reads.
func (s *session) knock(b *beat) {
	sent := time.Now()
	_, b.err = s.conn.Sync(s.b.opts.Root)
	if b.err == nil {
		s.proved(sent)
	}
	s.mu.Lock()
	s.beat = nil
	s.mu.Unlock()
	close(b.done)
}

// renew proves the session and reports that of all holds, which it has.
func (s *session) renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	p, err := s.prove(s.leaseTime()/15, ctx.Done())
	for _, h := range holds {
		switch held := h.State.(*held); {
		case errors.Is(err, errOver):
			report(h, backend.Fail(backend.ErrLost, s.whyOver()))
		case errors.Is(err, errLeft):
			report(h, backend.WaitEnded(ctx, false))
		case err != nil:
			report(h, backend.Fail(backend.ErrUnavailable, err))
		case !s.holding(held):
			report(h, backend.Fail(backend.ErrLost, errRemoved))
		default:
			h.Sent, h.Granted = p.sent, p.until.Sub(p.sent)
			report(h, nil)
		}
	}
	if err == nil {
		s.watchHolds(holds)
	}
}

// leaseTime is the session timeout that the server has granted.
func (s *session) leaseTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}
