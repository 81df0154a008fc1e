package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A crowd is the calls of Acquire that no node has answered yet. There are places for some of
// them: of ten thousand at once this process would look at most of the answers too late, and
// take nodes that are well for silent.
type crowd struct {
	places   chan struct{}
	answered atomic.Pointer[time.Time] // when a node has last answered one of them for the first time
}

// crowdSize is how many places there are.
const crowdSize = 256

// crowdPause is after how long a call that waits for a place looks whether others have been answered.
const crowdPause = 250 * time.Millisecond

func newCrowd() *crowd { return &crowd{places: make(chan struct{}, crowdSize)} }

// A place in the crowd is that of one call.
type place struct {
	b     *Backend
	taken bool
}

// take waits for a place, for as long as others are answered, and about in order. The caller's limit on the first answer
// counts until one of them is: whoever waits behind this call is told no more than that. It returns since
// when no node has answered anybody, from which time the limit on the first answer counts.
func (p *place) take(ctx context.Context, r *backend.Request) (silentSince time.Time, err error) {
	c, began := p.b.crowd, time.Now()
	select {
	case c.places <- struct{}{}:
		p.taken = true
		return began, nil
	default:
	}
	for since := began; time.Since(since) < firstAnswer; since = c.silentSince(began) {
		pause := firstAnswer - time.Since(since)
		if since.After(began) {
			r.Answered() // the limit is kept here
		} else {
			pause = min(pause, crowdPause)
		}
		select {
		case c.places <- struct{}{}:
			p.taken = true
			if since = c.silentSince(began); since.After(began) {
				r.Answered()
			}
			return since, nil
		case <-time.After(pause):
		case <-ctx.Done():
			return began, backend.WaitEnded(ctx, false)
		case <-p.b.closing:
			return began, backend.ErrClosed
		}
	}
	return began, errOverdue
}

// silentSince is when a node has last answered, or began if that is later.
func (c *crowd) silentSince(began time.Time) time.Time {
	if at := c.answered.Load(); at != nil && at.After(began) {
		return *at
	}
	return began
}

// leave gives the place back, once. Answered says that a node has answered.
func (p *place) leave(answered bool) {
	if !p.taken {
		return
	}
	if answered {
		now := time.Now()
		p.b.crowd.answered.Store(&now)
	}
	p.taken = false
	<-p.b.crowd.places
}
