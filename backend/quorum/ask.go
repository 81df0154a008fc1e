package quorum

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A query is one request to one node for the lock.
type query struct {
	seat, try int
	r         backend.Request
	ctx       context.Context
	sent      time.Time
}

// lastSeq counts the requests to nodes, of all backends: clients may share
// nodes between them.
var lastSeq atomic.Uint64

// query makes the next request to node i. Each has an id of its own. One that
// does not wait for the lock outlives the call: its answer is worth having even
// if nobody needs it any more. Called with h.mu held.
func (h *hold) query(i int, wait bool) query {
	s := &h.seats[i]
	s.tries++
	s.asking, s.is, s.since = true, asked, time.Now()
	q := query{seat: i, try: s.tries, r: h.r, ctx: h.base, sent: s.since}
	if wait {
		q.ctx, s.stop = context.WithCancel(h.ctx)
	}
	q.r.ID.Seq, q.r.Wait, q.r.Observer = lastSeq.Add(1), wait, &observer{h, i, q.try}
	return q
}

// ask has a goroutine ask node i for the lock, unless one is at it. Called with
// h.mu held.
func (h *hold) ask(i int, wait bool) {
	if h.seats[i].asking || h.over {
		return
	}
	q := h.query(i, wait)
	if !h.b.workers.do(func() { h.send(q) }) {
		s := &h.seats[i]
		s.asking, s.is, s.err = false, denied, backend.ErrClosed
	}
}

// errBacklog is why a node is not asked that has many requests to answer.
var errBacklog = backend.Fail(backend.ErrUnavailable, errors.New("the node does not answer"))

// send sends a query and takes the answer.
func (h *hold) send(q query) {
	n := h.b.nodes[q.seat]
	if !h.b.admit(n, h.r.TTL) {
		h.hear(q, nil, errBacklog)
		return
	}
	h.mu.Lock()
	h.seats[q.seat].counted = true
	h.mu.Unlock()
	var nh *backend.Hold
	var err error
	if n.register == nil {
		nh, err = n.Acquire(q.ctx, q.r)
	} else {
		nh, err = n.register.Vote(q.ctx, q.r, h.ballot())
	}
	h.note(q, err)
	h.hear(q, nh, err)
}

func (h *hold) ballot() backend.Ballot { return backend.Ballot{Token: h.propose(), Rejoin: h.b.rejoin} }

// note notes how the node is doing, unless it was in its queue that time passed.
func (h *hold) note(q query, err error) {
	n, took := h.b.nodes[q.seat], time.Since(q.sent)
	h.mu.Lock()
	s := &h.seats[q.seat]
	queued := s.queued == q.try
	s.discount(n)
	h.mu.Unlock()
	if !queued && q.ctx.Err() == nil {
		n.heard(took, err)
	}
}

// discount notes that the node has answered a request. Called with h.mu held.
func (s *seat) discount(n *node) {
	if s.counted {
		n.answered()
		s.counted = false
	}
}

// hear takes the answer of a node to a query.
func (h *hold) hear(q query, nh *backend.Hold, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.signal()
	s := &h.seats[q.seat]
	s.asking = false
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	switch unwanted := h.over || s.lost == q.try; {
	case err == nil && (unwanted || nh.Mode != h.r.Mode):
		h.giveBack(q.seat, nh)
		s.is, s.err = unasked, backend.ErrLost
	case s.lost == q.try:
		s.is = unasked
	case err == nil:
		h.take(q.seat, nh)
	default:
		s.refuse(err)
	}
}

// drop gives up what node i has granted or may grant. Called with h.mu held.
func (h *hold) drop(i int) {
	s := &h.seats[i]
	if s.hold != nil {
		h.giveBack(i, s.hold)
	}
	s.vacate(unasked, nil)
	s.lost = s.tries
	if s.stop != nil {
		s.stop()
	}
}

// refuse notes why there is no grant.
func (s *seat) refuse(err error) {
	var not *backend.NotReadyError
	s.err = err
	switch {
	case errors.Is(err, backend.ErrHeld):
		s.is, s.answered, s.refused = refused, true, true
	case errors.As(err, &not):
		s.is, s.readyIn = unready, not.In
	case kindOf(err) != backend.ErrUnavailable:
		s.is = denied
	default:
		s.is = failed
	}
}

// take seats a grant. Called with h.mu held.
func (h *hold) take(i int, nh *backend.Hold) {
	s := &h.seats[i]
	s.is, s.hold, s.err, s.answered = granted, nh, nil, true
	if h.token == 0 || !h.won && nh.Token > h.token {
		h.agree()
		return
	}
	h.bear(i)
}

// agree chooses the token as soon as enough nodes have granted: the greatest
// that they offer. Until the lock is held it chooses again for each that is
// greater: some of the others may have been lost and granted to somebody else
// since. Called with h.mu held.
func (h *hold) agree() {
	n, same, token := 0, true, uint64(0)
	for i := range h.seats {
		if c := h.seats[i].hold; c != nil {
			n++
			same = same && (token == 0 || token == c.Token)
			token = max(token, c.Token)
		}
	}
	if n < h.b.need {
		return
	}
	h.token = token
	if !same && token != h.offer {
		h.b.forecast.learn(token)
	}
	for i := range h.seats {
		if h.seats[i].hold != nil {
			h.seats[i].bears = false
			h.bear(i)
		}
	}
}

// bear counts a grant once the node's register has the token of the hold.
// Called with h.mu held.
func (h *hold) bear(i int) {
	s, n := &h.seats[i], h.b.nodes[i]
	if n.register == nil || s.hold.Token >= h.token {
		s.bears = true
		return
	}
	nh, token := s.hold, h.token
	h.b.janitor.Go(func(context.Context) { h.raise(i, nh, *nh, token) })
}

// raise writes the token to the register of a node. A node that does not take
// it does not count.
func (h *hold) raise(i int, nh *backend.Hold, c backend.Hold, token uint64) {
	ctx, cancel := backend.Detach(h.ctx, limit(h.r.TTL))
	defer cancel()
	err := h.b.nodes[i].register.RaiseToken(ctx, &c, token)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.signal()
	s := &h.seats[i]
	switch {
	case s.hold != nh || h.over:
	case err == nil && token < h.token: // another raise is under way
	case err == nil:
		s.bears = true
	default:
		s.vacate(failed, err)
		h.giveBack(i, nh)
	}
}

// kindOf is the kind of failure of a node. One that has no kind is a node that
// is not available.
func kindOf(err error) error {
	for _, kind := range []error{
		backend.ErrConflict, backend.ErrAuth, backend.ErrInvalidName, backend.ErrInvalidTTL,
		backend.ErrInvalidConfig, backend.ErrUnsupported, backend.ErrClosed,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return backend.ErrUnavailable
}
