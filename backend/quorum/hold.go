package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A hold is one request to the nodes, and what they have granted of it.
type hold struct {
	b       *Backend
	r       backend.Request
	round   int
	inOrder bool               // a node is asked when the one before it has granted
	ctx     context.Context    // of the requests under way
	stop    context.CancelFunc // ends them
	changed chan struct{}      // receives when a seat has changed

	mu    sync.Mutex
	late  *time.Timer // ends the requests under way once it is held
	seats []seat
	token uint64 // 0: too few nodes have granted
	offer uint64 // the token proposed last
	waits bool   // a node that refuses is waited for
	won   bool   // it is held
	over  bool   // it is not any more, or will not be
	told  bool   // Lost was reported
}

// A seat is how a hold stands with one node.
type seat struct {
	is       standing
	err      error // why it is not granted
	answered bool  // the node has granted or refused
	refused  bool  // it has refused, once at least
	asking   bool  // a goroutine is at it
	tries    int   // requests so far
	lost     int   // the try of which the node has said that it is lost
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
	unready          // the node does not vote yet
	failed           // the node did not answer; it may yet
	denied           // the node will not grant it
	granted
)

// newHold returns a hold that nobody has been asked for. The requests outlive
// ctx.
func (b *Backend) newHold(ctx context.Context, r backend.Request, round int) *hold {
	h := &hold{
		b: b, r: r, round: round,
		inOrder: b.all() && r.Wait,
		changed: make(chan struct{}, 1),
		seats:   make([]seat, len(b.nodes)),
		waits:   r.Wait,
	}
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	return h
}

// signal tells decide to look again.
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

// Queued implements backend.Observer. That one node is taken says little.
func (o *observer) Queued() {}

// Wanted implements backend.Observer.
func (o *observer) Wanted() { o.h.r.Observer.Wanted() }

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
// It returns the seats as they were.
func (h *hold) close() []seat {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	stop(h.late)
	return slices.Clone(h.seats)
}

// giveUp ends a hold that did not come about. It waits until the nodes that have
// granted know of that, if they answer: the next request shall not find the lock
// held by this one.
func (h *hold) giveUp(ctx context.Context) {
	ctx, cancel := backend.Bound(ctx, limit(h.r.TTL))
	defer cancel()
	var told []<-chan struct{}
	for i, s := range h.close() {
		if s.hold != nil {
			told = append(told, h.b.giveBack(h.b.nodes[i], s.hold))
		}
	}
	for _, c := range told {
		select {
		case <-c:
		case <-ctx.Done():
		case <-h.b.closing:
		}
	}
}

// giveBack releases a node's grant in the background. It closes told when the
// node has answered.
func (b *Backend) giveBack(n *node, nh *backend.Hold) (told <-chan struct{}) {
	done := make(chan struct{})
	b.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, nh.TTL)
		defer cancel()
		defer close(done)
		backend.Retry(ctx, func(ctx context.Context) error {
			if err := n.Release(ctx, nh); !settled(err) {
				return err
			}
			return nil
		})
	})
	return done
}

// settled reports that asking the same again brings nothing new.
func settled(err error) bool {
	return err == nil || errors.Is(err, backend.ErrLost) || kindOf(err) != backend.ErrUnavailable
}
