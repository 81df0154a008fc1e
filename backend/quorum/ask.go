package quorum

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// backlog is how many requests are left to a node that does not answer.
const backlog = 64

// ask has a goroutine ask the node for the lock, unless one is at it. Called
// with h.mu held.
func (h *hold) ask(i int) {
	s := &h.seats[i]
	if s.asking || h.over {
		return
	}
	s.asking, s.is = true, asked
	if !h.b.workers.do(func() { h.askNode(i) }) {
		s.asking, s.is, s.err = false, denied, backend.ErrClosed
	}
}

// askNode asks one node until it has granted or there is no more point.
func (h *hold) askNode(i int) { h.pursue(i, h.answer(i, false)) }

// pursue asks one node further after an answer.
func (h *hold) pursue(i int, next step) {
	pause := backend.Backoff{Min: 20 * time.Millisecond}
	for ; next != rest; next = h.answer(i, next == queue) {
		if next == queue {
			continue
		}
		if !backend.Sleep(h.ctx, pause.Next()) {
			h.mu.Lock()
			h.seats[i].asking = false
			h.mu.Unlock()
			return
		}
	}
}

// A step is what an asker does next.
type step uint8

const (
	rest  step = iota // nothing
	queue             // wait at the node for the lock
	again             // ask again
)

// answer asks once and takes the answer.
func (h *hold) answer(i int, wait bool) step {
	try, r := h.nextTry(i, wait)
	nh, err := h.request(i, r)
	return h.hear(i, try, nh, err)
}

// hear takes the answer of a node to a try.
func (h *hold) hear(i, try int, nh *backend.Hold, err error) step {
	h.b.nodes[i].heard(nh, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.signal()
	s := &h.seats[i]
	next := rest
	switch {
	case err == nil && (h.over || s.lost == try || nh.Mode != h.r.Mode): // not any more what is wanted
		h.b.giveBack(h.b.nodes[i], nh)
		s.is, s.err = failed, backend.ErrLost
	case err == nil:
		h.take(i, nh)
	default:
		next = h.refuse(s, err)
	}
	s.asking = next != rest
	return next
}

// lastSeq counts the requests to nodes, of all backends: clients may share
// nodes between them.
var lastSeq atomic.Uint64

// nextTry makes the next request to a node. Each has an id of its own.
func (h *hold) nextTry(i int, wait bool) (int, backend.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seats[i].tries++
	try, r := h.seats[i].tries, h.r
	r.ID.Seq, r.Wait, r.Observer = lastSeq.Add(1), wait, &observer{h, i, try}
	return try, r
}

// errBacklog is why a node is not asked that has many requests to answer.
var errBacklog = errors.New("the node does not answer")

// request sends a request and waits for the answer. That of one that does not
// wait for the lock is worth having even if nobody needs it any more.
func (h *hold) request(i int, r backend.Request) (*backend.Hold, error) {
	n, ctx := h.b.nodes[i], h.ctx
	if !r.Wait {
		ctx = context.WithoutCancel(ctx)
		defer n.unanswered.Add(-1)
		if n.unanswered.Add(1) > backlog && n.silent.Load() {
			return nil, backend.Fail(backend.ErrUnavailable, errBacklog)
		}
	}
	if n.register == nil {
		return n.Acquire(ctx, r)
	}
	return n.register.Vote(ctx, r, h.ballot())
}

func (h *hold) ballot() backend.Ballot { return backend.Ballot{Token: h.propose(), Rejoin: h.b.rejoin} }

// take seats a grant. Called with h.mu held.
func (h *hold) take(i int, nh *backend.Hold) {
	s := &h.seats[i]
	s.is, s.hold, s.err, s.answered = granted, nh, nil, true
	if h.inOrder && i+1 < len(h.seats) && h.seats[i+1].is == unasked {
		h.ask(i + 1)
	}
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
		h.b.giveBack(h.b.nodes[i], nh)
		if h.waits && !h.won {
			h.ask(i)
		}
	}
}

// refuse notes why there is no grant. Called with h.mu held.
func (h *hold) refuse(s *seat, err error) step {
	var not *backend.NotReadyError
	s.err = err
	switch {
	case errors.Is(err, backend.ErrHeld):
		s.is, s.answered, s.refused = refused, true, true
		if h.waits && !h.over && h.ctx.Err() == nil {
			return queue
		}
		return rest
	case errors.As(err, &not):
		s.is = unready
	case kindOf(err) != backend.ErrUnavailable:
		s.is = denied
		return rest
	default:
		s.is = failed
	}
	if h.waits && !h.won && !h.over {
		return again
	}
	return rest
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
