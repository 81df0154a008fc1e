package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A hold is one request to the nodes, and what they have granted of it.
type hold struct {
	b       *Backend
	r       backend.Request
	round   int
	base    context.Context    // of requests that do not wait: it does not end
	ctx     context.Context    // of those that do
	stop    context.CancelFunc // ends them
	changed chan struct{}      // receives when a seat has changed

	mu        sync.Mutex
	front     int         // the node at which who waits queues; -1: none
	late      *time.Timer // ends the requests under way once it is held
	seats     []seat
	returning int    // grants that are being given back
	token     uint64 // 0: too few nodes have granted
	offer     uint64 // the token proposed last
	won       bool   // it is held
	over      bool   // it is not any more, or will not be
	told      bool   // Lost was reported
}

// A seat is how a hold stands with one node.
type seat struct {
	is       standing
	err      error         // why it is not granted
	readyIn  time.Duration // when the node votes, if it does not yet
	answered bool          // the node has granted or refused
	refused  bool          // it has refused, once at least
	asking   bool          // a request is under way
	since    time.Time     // when it was sent
	counted  bool          // among those that the node has not answered
	stop     func()        // ends it, if it waits at the node
	tries    int           // requests so far
	queued   int           // the try that was put in the node's queue
	lost     int           // the try whose grant is of no use, or none any more
	hold     *backend.Hold
	bears    bool // the node's register has our token
	renewing bool // a renewal is under way
	released bool
}

type standing uint8

const (
	unasked standing = iota
	asked            // no answer yet
	refused          // somebody else has it
	granted
	unready // the node does not vote yet
	failed  // the node did not answer; it may yet
	denied  // the node will not grant it
)

// isOut reports that nothing is to be expected of the node in this round.
func (s *seat) isOut() bool { return s.is >= unready }

// newHold returns a hold that nobody has been asked for. The requests outlive
// ctx.
func (b *Backend) newHold(ctx context.Context, r backend.Request, round int) *hold {
	if r.Observer == nil {
		r.Observer = nobody{}
	}
	h := &hold{
		b: b, r: r, round: round,
		base:    context.WithoutCancel(ctx),
		changed: make(chan struct{}, 1),
		seats:   make([]seat, len(b.nodes)),
	}
	h.ctx, h.stop = context.WithCancel(h.base)
	return h
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Queued()    {}
func (nobody) Lost(error) {}
func (nobody) Wanted()    {}

// signal tells who waits for the nodes to look again.
func (h *hold) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// bearing is how many nodes count for the hold. Called with h.mu held.
func (h *hold) bearing() (n int) {
	for i := range h.seats {
		if h.seats[i].bears {
			n++
		}
	}
	return n
}

// vacate forgets what the node has granted. Called with h.mu held.
func (s *seat) vacate(is standing, err error) {
	s.is, s.err, s.hold, s.bears = is, err, nil, false
}

// An observer hears of what one node has granted to one request.
type observer struct {
	h    *hold
	seat int
	try  int
}

// Lost implements backend.Observer. The hold is lost when too few nodes are
// left that have it.
func (o *observer) Lost(cause error) {
	h := o.h
	h.mu.Lock()
	s := &h.seats[o.seat]
	s.lost = o.try
	if s.hold != nil && s.tries == o.try {
		s.vacate(failed, backend.Fail(backend.ErrLost, cause))
	}
	tell := h.won && !h.over && !h.told && h.bearing() < h.b.need
	h.told = h.told || tell
	h.mu.Unlock()
	h.signal()
	if tell {
		h.r.Observer.Lost(cause)
	}
}

// Queued implements backend.Observer: the request waits at the node.
func (o *observer) Queued() {
	h := o.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.seats[o.seat]
	if s.tries != o.try || s.queued == o.try || s.is != asked && s.is != failed {
		return
	}
	s.is, s.queued, s.answered, s.refused = refused, o.try, true, true
	h.b.nodes[o.seat].heard(time.Since(s.since), nil)
	s.discount(h.b.nodes[o.seat])
	h.signal()
}

// Wanted implements backend.Observer.
func (o *observer) Wanted() {
	o.h.b.contended.keep(hashOf(o.h.r.Name))
	o.h.r.Observer.Wanted()
}

// A lease is how long a hold lasts.
type lease struct {
	sent    time.Time
	granted time.Duration // 0: for as long as the nodes' connections
	renewIn time.Duration
}

func (l lease) lasts() bool {
	return l.granted == 0 || time.Since(l.sent) < l.granted-backend.Margin(l.granted)
}

// before reports whether h1 ends before h2, as its holder sees it.
func before(h1, h2 *backend.Hold) bool {
	if h1.Granted == 0 || h2.Granted == 0 {
		return h1.Granted != 0
	}
	return end(h1).Before(end(h2))
}

func end(h *backend.Hold) time.Time {
	return h.Sent.Add(h.Granted - backend.Margin(h.Granted))
}

// lease returns that of the node that is the first without which too few are
// left. Called with h.mu held, with enough nodes standing.
func (h *hold) lease() lease {
	var kept *backend.Hold // need nodes last as long as this one, or longer
	for i := range h.seats {
		c := h.seats[i].hold
		if !h.seats[i].bears || kept != nil && !before(kept, c) {
			continue
		}
		if h.lastingAsLong(c) >= h.b.need {
			kept = c
		}
	}
	l := lease{sent: kept.Sent, granted: kept.Granted}
	l.renewIn = max(h.renewAt().Sub(l.sent), time.Millisecond)
	return l
}

func (h *hold) lastingAsLong(c *backend.Hold) (n int) {
	for i := range h.seats {
		if h.seats[i].bears && !before(h.seats[i].hold, c) {
			n++
		}
	}
	return n
}

// renewAt is when the first of the nodes wants to be renewed.
func (h *hold) renewAt() (first time.Time) {
	for i := range h.seats {
		c := h.seats[i].hold
		if !h.seats[i].bears {
			continue
		}
		in := c.RenewIn
		if in == 0 {
			in = max(c.Granted, 0) / 3
		}
		if in == 0 {
			in = c.TTL / 3
		}
		if at := c.Sent.Add(in); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// close ends the requests under way. What they bring nevertheless is given back.
func (h *hold) close() {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.late != nil {
		h.late.Stop()
	}
}

// giveUp ends a hold that did not come about. It waits until the nodes that answer
// know of that: the next request, of anybody, shall not find the lock held or
// waited for by this one.
func (h *hold) giveUp(ctx context.Context) {
	h.close()
	ctx, cancel := backend.Detach(ctx, min(limit(h.r.TTL), leaving))
	defer cancel()
	h.mu.Lock()
	for i := range h.seats {
		if s := &h.seats[i]; s.hold != nil {
			h.giveBack(i, s.hold)
		}
	}
	h.mu.Unlock()
	for {
		left := h.leavesIn()
		if left <= 0 {
			return
		}
		t := time.NewTimer(left)
		select {
		case <-h.changed:
		case <-t.C:
		case <-ctx.Done():
			left = 0
		case <-h.b.closing:
			left = 0
		}
		t.Stop()
		if left == 0 {
			return
		}
	}
}

// leaving bounds the wait for nodes to know that a request was given up.
const leaving = 250 * time.Millisecond

// leavesIn returns how long the nodes have to hear that the hold is given up: not
// at all once those that answer have.
func (h *hold) leavesIn() (left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.returning > 0 {
		left = leaving
	}
	for i := range h.seats {
		s, n := &h.seats[i], h.b.nodes[i]
		switch {
		case !s.asking || n.silent.Load():
		case s.queued == s.tries:
			left = leaving
		default:
			left = max(left, n.limit(h.r.TTL)-time.Since(s.since))
		}
	}
	return left
}

// giveBack releases what node i has granted, in the background. Called with h.mu
// held.
func (h *hold) giveBack(i int, nh *backend.Hold) {
	n := h.b.nodes[i]
	h.returning++
	first := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.returning--
		h.signal()
	}
	ok := h.b.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, nh.TTL)
		defer cancel()
		var once sync.Once
		defer once.Do(first)
		backend.Retry(ctx, func(ctx context.Context) error {
			err := n.Release(ctx, nh)
			once.Do(first)
			if settled(err) {
				return nil
			}
			return err
		})
	})
	if !ok {
		h.returning--
	}
}

// settled reports that asking the same again brings nothing new.
func settled(err error) bool {
	return err == nil || errors.Is(err, backend.ErrLost) || kindOf(err) != backend.ErrUnavailable
}
