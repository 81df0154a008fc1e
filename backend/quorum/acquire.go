package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// patience bounds the time for which too few nodes answer a request that
	// waits.
	patience = 3 * time.Second

	// standby is how long a request that must not wait does so all the same,
	// when it has some of the nodes: of several that have come at once one shall
	// win. All but the one with the first node give way much sooner.
	standby = 200 * time.Millisecond
	giveWay = 20 * time.Millisecond
)

// errSplit says that nobody can have a majority, or that it came too late.
var errSplit = errors.New("the votes are split")

// Acquire implements backend.Backend. First come is first served only as far as
// the nodes are asked in the same order.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if b.maxTTL > 0 && r.TTL > b.maxTTL {
		return nil, backend.Fail(backend.ErrInvalidTTL, fmt.Errorf("%v is more than the quorum's greatest TTL, %v", r.TTL, b.maxTTL))
	}
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	defer b.calls.Done()
	split, pause := backend.Backoff{Min: 40 * time.Millisecond}, backend.Backoff{Min: 5 * time.Millisecond}
	for round := 0; ; round++ {
		c := &call{hold: b.newHold(ctx, r, round), patience: min(split.Next(), r.TTL/4)}
		if b.all() {
			c.patience = r.TTL / 3
		}
		bh, err := c.decide(ctx)
		if err == nil {
			return bh, nil
		}
		c.giveUp(ctx)
		if !errors.Is(err, errSplit) || !r.Wait {
			return nil, err
		}
		b.sleep(ctx, pause.Next())
	}
}

// sleep waits for d, or until ctx or the backend ends.
func (b *Backend) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-b.closing:
	}
}

// A call is the wait of one Acquire for the nodes, in one round.
type call struct {
	*hold
	patience time.Duration // with some of the nodes for the rest

	split   *time.Timer // fires when that is over; nil: it has not begun
	silence *time.Timer // fires when too few nodes have answered for too long
}

// decide asks the nodes and waits until the lock is held or will not be.
func (c *call) decide(ctx context.Context) (*backend.Hold, error) {
	defer func() { stop(c.split); stop(c.silence) }()
	c.begin()
	for {
		c.mu.Lock()
		bh, err := c.judge()
		answered := c.answered() >= c.b.need || c.round > 0
		c.mu.Unlock()
		if bh != nil || err != nil {
			return bh, err
		}
		select {
		case <-c.changed:
		case <-fires(c.split):
			if !c.r.Wait {
				return nil, backend.ErrHeld
			}
			return nil, errSplit
		case <-fires(c.silence):
			return nil, c.failure()
		case <-ctx.Done():
			return nil, backend.WaitEnded(ctx, answered)
		case <-c.b.closing:
			return nil, backend.ErrClosed
		}
	}
}

// begin asks all nodes, or the first.
func (c *call) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.seats {
		c.ask(i)
		if c.inOrder {
			return
		}
	}
}

// judge looks at what the nodes have said. Called with h.mu held.
func (c *call) judge() (*backend.Hold, error) {
	n := c.count()
	switch out := len(c.seats) - c.b.need; {
	case c.bearing() >= c.b.need:
		return c.win()
	case n[denied] > out:
		return nil, c.failureLocked()
	case c.r.Wait:
		c.watch(&c.silence, n[failed]+n[denied] > out, patience)
		c.watch(&c.split, c.stuck(n), c.patience)
	case n[granted]+n[asked] >= c.b.need, c.waits:
	case n[refused] <= out && n[granted]+n[refused]+n[asked] < c.b.need:
		return nil, c.failureLocked()
	case n[refused] <= out && n[granted]+n[refused] < c.b.need: // held or unavailable: it will show
	case n[granted] == 0:
		return nil, backend.ErrHeld
	default:
		c.standBy()
	}
	return nil, nil
}

// stuck reports that some nodes have granted, and others refuse.
func (h *hold) stuck(n [granted + 1]int) bool {
	switch {
	case n[granted] == 0 || n[granted] >= h.b.need || n[asked] > 0:
		return false
	case h.inOrder:
		return n[refused] > 0
	}
	return n[granted]+n[refused] >= h.b.need
}

func (h *hold) count() (n [granted + 1]int) {
	for i := range h.seats {
		n[h.seats[i].is]++
	}
	return n
}

func (h *hold) answered() (n int) {
	for i := range h.seats {
		if h.seats[i].answered {
			n++
		}
	}
	return n
}

// first reports whether the first of the nodes that have answered has granted.
func (h *hold) first() bool {
	for i := range h.seats {
		if h.seats[i].answered {
			return h.seats[i].is == granted
		}
	}
	return false
}

// standBy waits for the other nodes although the request must not.
func (c *call) standBy() {
	c.waits = true
	for i := range c.seats {
		if c.seats[i].is == refused {
			c.ask(i)
		}
	}
	d := giveWay/2 + rand.N(giveWay)
	if c.first() {
		d = standby
	}
	c.watch(&c.split, true, min(d, c.r.TTL/4))
}

// watch has a timer run while on.
func (c *call) watch(t **time.Timer, on bool, d time.Duration) {
	switch {
	case on && *t == nil:
		*t = time.NewTimer(d)
	case !on && *t != nil:
		stop(*t)
		*t = nil
	}
}

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

func fires(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}

// win makes a hold of what the nodes have granted. Those that have not answered
// yet may join it. Called with h.mu held.
func (c *call) win() (*backend.Hold, error) {
	l := c.lease()
	if !l.lasts() {
		if c.r.Wait {
			return nil, errSplit
		}
		return nil, backend.Fail(backend.ErrUnavailable, errTooLate)
	}
	c.won = true
	tells, asking := false, false
	for i := range c.seats {
		asking = asking || c.seats[i].asking
		tells = tells || c.seats[i].hold != nil && c.seats[i].hold.TellsWanted
	}
	if asking {
		c.grace = time.AfterFunc(limit(c.r.TTL), c.stop)
	} else {
		c.stop()
	}
	return &backend.Hold{
		Request:     c.r,
		Token:       c.token,
		Sent:        l.sent,
		Granted:     l.granted,
		RenewIn:     l.renewIn,
		TellsWanted: tells,
		State:       c.hold,
	}, nil
}

var errTooLate = errors.New("the nodes took longer than the lease lasts")

func (c *call) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failureLocked()
}

// failureLocked says why too few nodes have granted. An error that will not go
// away tells more than one that may. Called with h.mu held.
func (c *call) failureLocked() error {
	kind := error(backend.ErrUnavailable)
	for i := range c.seats {
		if err := c.seats[i].err; c.seats[i].is == denied && kind == backend.ErrUnavailable {
			kind = kindOf(err)
		}
	}
	var why []error
	for i := range c.seats {
		s := &c.seats[i]
		if (s.is == failed || s.is == unready || s.is == denied) && kindOf(s.err) == kind {
			why = append(why, fmt.Errorf("node %d: %w", i+1, s.err))
		}
	}
	return backend.Fail(kind, errors.Join(why...))
}
