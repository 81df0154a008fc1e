package quorum

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A hold is one request to the nodes, and what they have granted of it.
type hold struct {
	b       *Backend
	request backend.Request
	waiting context.Context    // of requests that wait for the lock
	stop    context.CancelFunc // ends them
	firstBy time.Time          // by when enough nodes have answered first
	changed changes            // of the votes

	mu         sync.Mutex
	heard      bool        // a node has answered
	front      int         // the node at which who waits queues; -1: none
	lateTimer  *time.Timer // ends the requests under way once the lock is held
	joinTimer  *time.Timer // has nodes asked that have no part of it; nil: it does not run
	votes      []vote
	releasing  int       // grants that are being given back
	lastEntry  int64     // the greatest number of a call of Reenter
	endEntry   func()    // ends what is left of that call
	token      uint64    // 0: too few nodes have granted
	proposed   uint64    // the token proposed last
	proposedAt time.Time // and when; zero: none was
	ofFront    bool      // the front has made it
	held       bool      // enough nodes have granted
	believed   time.Time // when it ends by what its holder was told last
	lost       bool      // and too few of them have kept it, at some moment
	over       bool      // it is not held any more, or will not be
}

// newHold returns a hold that no node has been asked for. The requests outlive
// ctx.
func (b *Backend) newHold(ctx context.Context, r backend.Request) *hold {
	h := &hold{
		b: b, request: r,
		votes:    make([]vote, len(b.nodes)),
		endEntry: func() {},
	}
	h.waiting, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	return h
}

// notify has whoever waits for the nodes look again.
func (h *hold) notify() { h.changed.notify() }

// lease returns the part that says how long the hold lasts: enough nodes have granted for as
// long, or longer. Called with h.mu held, with enough votes.
func (h *hold) lease() *backend.Hold {
	parts := make([]*backend.Hold, 0, len(h.votes))
	for i := range h.votes {
		if v := &h.votes[i]; v.counts {
			parts = append(parts, v.hold)
		}
	}
	slices.SortFunc(parts, func(p, q *backend.Hold) int { return deadline(q).Compare(deadline(p)) })
	return parts[h.b.need-1]
}

// deadline is when h ends, as its holder sees it.
func deadline(h *backend.Hold) time.Time {
	if h.Granted == 0 { // it lasts as long as the node's connection
		return time.Unix(1<<40, 0)
	}
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
		in := cmp.Or(c.RenewIn, max(c.Granted, 0)/3, c.TTL/3)
		if at := c.Sent.Add(in); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}
