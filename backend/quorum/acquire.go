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

	// minPatience is the least for which a request waits with some of the
	// nodes for the rest.
	minPatience = 4 * time.Millisecond

	// minGrace is the least for which the other nodes are waited for once there
	// are enough.
	minGrace = time.Millisecond
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
	pause := backend.Backoff{Min: time.Millisecond}
	found := false
	for round := 0; ; round++ {
		c := &call{hold: b.newHold(ctx, r, round), began: time.Now(), found: found}
		bh, err := c.decide(ctx)
		if err == nil {
			return bh, nil
		}
		c.giveUp(ctx)
		if !errors.Is(err, errSplit) || !r.Wait {
			return nil, err
		}
		found = c.found
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
	began time.Time
	found bool          // the nodes have said, in this round or before, that somebody has the lock
	first time.Time     // when the first node had granted
	took  time.Duration // until enough nodes had answered

	split   *time.Timer // fires after waiting with some of the nodes for the rest; nil: not so now
	silence *time.Timer // fires when too few nodes have answered for too long
	slow    *time.Timer // fires when the nodes have had the time to answer
	grace   *time.Timer // fires when it is time to go without the others
	alone   bool        // it has
}

// decide asks the nodes and waits until the lock is held or will not be.
func (c *call) decide(ctx context.Context) (*backend.Hold, error) {
	defer func() { stop(c.split); stop(c.silence); stop(c.slow); stop(c.grace) }()
	c.begin(ctx)
	for {
		c.mu.Lock()
		bh, err := c.judge()
		c.found = c.found || c.held()
		c.mu.Unlock()
		if bh != nil || err != nil {
			return bh, err
		}
		if c.found && c.r.Wait {
			c.r.Queued()
		}
		if c.slow == nil {
			c.slow = time.NewTimer(limit(c.r.TTL))
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
		case <-fires(c.slow):
			c.overdue()
		case <-fires(c.grace):
			c.alone = true
		case <-ctx.Done():
			return nil, backend.WaitEnded(ctx, c.found)
		case <-c.b.closing:
			return nil, backend.ErrClosed
		}
	}
}

// begin asks all nodes, or the first, and waits for those that answer at once.
func (c *call) begin(ctx context.Context) {
	all := c.seats
	if c.inOrder {
		all = all[:1]
	}
	mine := make([]started[*backend.Hold], 0, len(all))
	for i := range all {
		if s, ok := c.start(i); ok {
			mine = append(mine, s)
			continue
		}
		c.mu.Lock()
		c.ask(i)
		c.mu.Unlock()
	}
	wait(context.WithoutCancel(ctx), &c.b.workers, mine)
}

// overdue takes for failed the nodes that have not answered. They may yet.
func (c *call) overdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.seats {
		if s := &c.seats[i]; s.is == asked {
			s.is, s.err = failed, errOverdue
			c.b.nodes[i].silent.Store(true)
		}
	}
	c.slow.Reset(limit(c.r.TTL)) // for those that have been asked again
}

var errOverdue = backend.Fail(backend.ErrUnavailable, errors.New("no answer in time"))

// judge looks at what the nodes have said. Called with h.mu held.
func (c *call) judge() (*backend.Hold, error) {
	n := c.count()
	if n[granted] > 0 && c.first.IsZero() {
		c.first = time.Now()
	}
	if c.took == 0 && n[granted]+n[refused] >= c.b.need {
		c.took = time.Since(c.began)
	}
	switch out := len(c.seats) - c.b.need; {
	case c.bearing() >= c.b.need:
		if c.alone || !c.more() {
			return c.win()
		}
		c.watch(&c.grace, true, max(time.Since(c.first), minGrace))
	case n[denied] > out:
		return nil, c.failureLocked()
	case c.r.Wait:
		c.watch(&c.silence, n[failed]+n[denied] > out, patience)
		c.watch(&c.split, c.stuck(n), c.patience())
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

// held reports that the nodes have said that somebody has the lock: one of them
// has refused it, and enough have answered.
func (h *hold) held() bool {
	n, refusals := 0, 0
	for i := range h.seats {
		if h.seats[i].answered {
			n++
		}
		if h.seats[i].refused {
			refusals++
		}
	}
	return refusals > 0 && n >= h.b.need
}

// more reports whether another node is about to join the hold: one that answers,
// as far as is known. To go without it is safe, but then it has to be told of
// the end of the hold before it has granted it.
func (h *hold) more() bool {
	for i := range h.seats {
		s := &h.seats[i]
		coming := s.asking && (s.is == asked || s.is == refused) || s.is == granted && !s.bears
		if coming && !h.b.nodes[i].silent.Load() {
			return true
		}
	}
	return false
}

// leads reports whether the first of the nodes that have answered has granted.
func (h *hold) leads() bool {
	for i := range h.seats {
		if h.seats[i].answered {
			return h.seats[i].is == granted
		}
	}
	return false
}

// patience is how long to wait with some of the nodes for the rest: a few times
// what their answers took, the longer the more often that was not enough. Of
// those who have come at once the one who leads waits for the others to give way.
func (c *call) patience() time.Duration {
	if c.inOrder {
		return c.r.TTL / 3
	}
	d := max(4*c.took, minPatience) << min(c.round, 6)
	d = d/2 + rand.N(d)
	if c.leads() {
		d *= 4
	}
	return min(d, time.Second, c.r.TTL/4)
}

// standBy waits for the other nodes although the request must not.
func (c *call) standBy() {
	c.waits = true
	for i := range c.seats {
		if c.seats[i].is == refused {
			c.ask(i)
		}
	}
	c.watch(&c.split, true, 4*c.patience())
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

// win makes a hold of what the nodes have granted. The others are waited for a
// while longer: a node that nobody has goes to somebody who waits, in vain.
// Called with h.mu held.
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
		c.late = time.AfterFunc(limit(c.r.TTL), c.stop)
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
