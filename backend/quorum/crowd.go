package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A crowd is the calls of Acquire that no node has answered yet. There are places for some of
// them: of ten thousand at once this process would look at most of the answers too late, and
// take nodes that are well for silent.
type crowd struct {
	places chan struct{}

	mu       sync.Mutex
	answered time.Time // when a node has last answered one of them for the first time
}

func newCrowd() crowd { return crowd{places: make(chan struct{}, backlog)} }

// A place in the crowd is that of one call.
type place struct {
	b     *Backend
	taken bool
}

// take waits for a place, for as long as others are answered, and in order. It returns since
// when no node has answered anybody, from which time the limit on the first answer counts.
func (p *place) take(ctx context.Context, r *backend.Request) (silentSince time.Time, err error) {
	c, began := &p.b.crowd, time.Now()
	select {
	case c.places <- struct{}{}:
		p.taken = true
		return began, nil
	default:
	}
	t := time.NewTimer(firstAnswer)
	defer t.Stop()
	for {
		select {
		case c.places <- struct{}{}:
			p.taken = true
			r.Answered() // the limit is kept here
			return c.silentSince(began), nil
		case <-t.C:
			left := firstAnswer - time.Since(c.silentSince(began))
			if left <= 0 {
				return began, errOverdue
			}
			r.Answered()
			t.Reset(left)
		case <-ctx.Done():
			return began, backend.WaitEnded(ctx, false)
		case <-p.b.closing:
			return began, backend.ErrClosed
		}
	}
}

// silentSince is when a node has last answered, or began if that is later.
func (c *crowd) silentSince(began time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered.After(began) {
		return c.answered
	}
	return began
}

// answered leaves the place: a node has answered.
func (p *place) answered() {
	if p.taken {
		p.b.crowd.mu.Lock()
		p.b.crowd.answered = time.Now()
		p.b.crowd.mu.Unlock()
	}
	p.leave()
}

func (p *place) leave() {
	if p.taken {
		p.taken = false
		<-p.b.crowd.places
	}
}
