package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A hold is one request to the nodes, and what they have granted of it.
type hold struct {
	b        *Backend
	request  backend.Request
	detached context.Context    // of requests that do not wait for the lock: it does not end
	waiting  context.Context    // of those that do
	stop     context.CancelFunc // ends them
	tryEnds  time.Time          // by when a request that must not wait has enough answers
	changed  chan struct{}      // receives when a vote has changed

	mu         sync.Mutex
	heardAt    time.Time   // when the first node has answered; zero: none has
	front      int         // the node at which who waits queues; -1: none
	lateTimer  *time.Timer // ends the requests under way once the lock is held
	joinTimer  *time.Timer // has nodes asked that have no part of it; nil: it does not run
	votes      []vote
	releasing  int       // grants that are being given back
	token      uint64    // 0: too few nodes have granted
	proposed   uint64    // the token proposed last
	proposedAt time.Time // and when; zero: the front has made it
	held       bool      // enough nodes have granted
	lost       bool      // and too few of them have kept it, at some moment
	over       bool      // it is not held any more, or will not be
	reported   bool      // Lost was reported
}

// newHold returns a hold that no node has been asked for. The requests outlive
// ctx.
func (b *Backend) newHold(ctx context.Context, r backend.Request) *hold {
	if r.Observer == nil {
		r.Observer = noObserver{}
	}
	h := &hold{
		b: b, request: r,
		detached: context.WithoutCancel(ctx),
		changed:  make(chan struct{}, 1),
		votes:    make([]vote, len(b.nodes)),
	}
	h.waiting, h.stop = context.WithCancel(h.detached)
	return h
}

type noObserver struct{}

func (noObserver) Queued()    {}
func (noObserver) Lost(error) {}
func (noObserver) Wanted()    {}

// notify has whoever waits for the nodes look again.
func (h *hold) notify() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// A lease is how long a hold lasts.
type lease struct {
	sent    time.Time
	granted time.Duration // 0: for as long as the nodes' connections
	renewIn time.Duration
}

func (l lease) isValid() bool {
	return l.granted == 0 || time.Since(l.sent) < l.granted-backend.Margin(l.granted)
}

// lease returns that of the last node without which too few are left: enough others
// last as long or longer. Called with h.mu held, with enough votes.
func (h *hold) lease() lease {
	var last *backend.Hold
	for i := range h.votes {
		c := h.votes[i].hold
		if !h.votes[i].counts || last != nil && !endsBefore(last, c) {
			continue
		}
		if h.countLasting(c) >= h.b.need {
			last = c
		}
	}
	l := lease{sent: last.Sent, granted: last.Granted}
	l.renewIn = max(h.renewAt().Sub(l.sent), time.Millisecond)
	return l
}

// countLasting is how many nodes grant for as long as c, or longer.
func (h *hold) countLasting(c *backend.Hold) (n int) {
	for i := range h.votes {
		if h.votes[i].counts && !endsBefore(h.votes[i].hold, c) {
			n++
		}
	}
	return n
}

// endsBefore reports whether a ends before b, as its holder sees it.
func endsBefore(a, b *backend.Hold) bool {
	if a.Granted == 0 || b.Granted == 0 {
		return a.Granted != 0
	}
	return deadline(a).Before(deadline(b))
}

func deadline(h *backend.Hold) time.Time {
	return h.Sent.Add(h.Granted - backend.Margin(h.Granted))
}

// renewAt is when the first of the nodes wants to be renewed, also of those that do not
// count yet.
func (h *hold) renewAt() (first time.Time) {
	for i := range h.votes {
		c := h.votes[i].hold
		if c == nil {
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
