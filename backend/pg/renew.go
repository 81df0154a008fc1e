package pg

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Renew implements backend.Renewer. One exchange renews all holds of a
// session, and none is needed if the session has answered just now.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	proofs := make(map[*session]*call)
	for _, h := range holds {
		if s := h.State.(*hold).grant.session; proofs[s] == nil {
			proofs[s] = s.renew(time.Now().Add(-h.TTL / 6))
			if calls := s.look(h.TTL / 2); calls != nil { // it is too busy to be asked for a proof
				s.start(calls...)
			}
		}
	}
	for _, h := range holds {
		x := h.State.(*hold)
		report(h, b.renewed(ctx, h, x, proofs[x.grant.session]))
	}
}

func (b *Backend) renewed(ctx context.Context, h *backend.Hold, x *hold, proof *call) error {
	select {
	case <-proof.done:
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case x.grant.over:
		return backend.Fail(backend.ErrLost, proof.err)
	case proof.err != nil:
		return classify(proof.err)
	}
	h.Sent, h.Granted = proof.sent, min(h.TTL, x.grant.session.lease())
	return nil
}

// renew proves that the session is alive, unless it has answered something that was
// sent after fresh. All who ask meanwhile share one call.
func (s *session) renew(fresh time.Time) *call {
	proof, first := s.sharedProof(fresh)
	if first {
		s.start(append([]*call{proof}, s.look(0)...)...)
	}
	return proof
}

func (s *session) sharedProof(fresh time.Time) (proof *call, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead == nil && s.proven.After(fresh):
		return &call{done: closed, sent: s.proven}, false
	case s.proof != nil:
		return s.proof, false
	}
	s.proof = newCall(ping, int64(s.pid))
	s.proof.onAnswer = s.proved
	return s.proof, true
}

func (s *session) proved(proof *call) {
	s.mu.Lock()
	s.proof = nil
	s.mu.Unlock()
	if proof.err == nil && proof.value != 1 {
		proof.err = errMoved
		s.kill(errMoved)
	}
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	x := h.State.(*hold)
	g := x.grant
	b.mu.Lock()
	switch {
	case x.release != nil || g.over:
		b.mu.Unlock()
		return backend.ErrLost
	case g.pending != nil:
		o := g.pending
		b.mu.Unlock()
		return o.wait(ctx)
	case g.shared:
		b.mu.Unlock()
		return nil
	}
	o := newOutcome()
	g.pending = o
	b.mu.Unlock()
	g.session.start(&call{op: downgrade, arg: g.lock.key, onAnswer: func(c *call) { b.downgraded(g, c) }})
	return o.wait(ctx)
}

// downgraded takes the answer. A statement that failed may have done half of its work,
// and ends the session.
func (b *Backend) downgraded(g *grant, c *call) {
	s := g.session
	err := c.err
	if err == nil && c.value != 1 {
		err = errNotHeld
	}
	if err != nil {
		s.kill(err)
		err = backend.Fail(backend.ErrLost, err)
	} else {
		s.start(&call{op: checkListeners, arg: c.arg, onAnswer: func(c *call) {
			if c.value == someoneListens || c.err != nil {
				s.notifyListeners(c.arg)
			}
		}})
	}
	b.mu.Lock()
	o := g.pending
	g.pending, g.shared = nil, true
	g.lock.change()
	b.mu.Unlock()
	o.set(err)
}
