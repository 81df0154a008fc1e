package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A quietNode tells no holder that its hold is gone before it is asked, and answers renewals late.
type quietNode struct{ *memory.Backend }

type quiet struct{ backend.Observer }

func (quiet) Lost(error) {}

func (n *quietNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	r.Observer = quiet{r.Observer}
	return n.Backend.Vote(ctx, r, b)
}

func (n *quietNode) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	time.Sleep(5 * time.Millisecond)
	n.Backend.Renew(ctx, holds, report)
}

// A lateAnswer is a node that grants at once, and its client hears of that late.
type lateAnswer struct {
	*memory.Backend
	late time.Duration
}

func (n *lateAnswer) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	h, err := n.Backend.Vote(ctx, r, b)
	time.Sleep(n.late)
	return h, err
}

// isBroken fails the test unless the next renewal ends the lease.
func isBroken(t *testing.T, l *dlock.Lease) {
	t.Helper()
	time.Sleep(ttl / 2)
	is(t, l.Err(), dlock.ErrBroken)
	_ = l.Unlock(t.Context())
}

// A hold has two of three nodes, as the third was away for its holder. Whoever breaks it does not reach
// one of the two, and is not told that it is done: the holder's next renewal finds the third there again,
// and the hold goes on with two. For whoever reaches both it is over.
func TestBreakBesideANodeThatComesBack(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		away := &deadNode{Backend: memory.New(s[2])}
		c, b := over(t, []backend.Backend{&quietNode{memory.New(s[0])}, &quietNode{memory.New(s[1])}, away}, nil), s.open(t, nil)
		away.dead.Store(true)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait() // the third has failed to vote
		away.dead.Store(false)
		b.links[1].Cut()
		defer b.heal()
		is(t, b.Break(t.Context(), "x", l.Token()), dlock.ErrUnavailable)
		time.Sleep(ttl / 2)
		ok(t, l.Err())
		ok(t, s.open(t, nil).Break(t.Context(), "x", l.Token()))
		isBroken(t, l)
	})
}

// A hold is broken that has two of three nodes, while the grant of the third is on its way to its holder.
// Whoever breaks it reaches the third and one other. The word of the third overtakes its grant, that of the
// other is lost. The holder does not ask the third for the hold anew.
func TestBreakAheadOfALateGrant(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		late := &lateAnswer{Backend: memory.New(s[2])}
		c, b := over(t, []backend.Backend{memory.New(s[0]), &quietNode{memory.New(s[1])}, late}, nil), s.open(t, nil)
		ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing))
		synctest.Wait() // all nodes have answered
		late.late = 40 * time.Millisecond
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait() // the third has granted
		b.links[0].Cut()
		defer b.heal()
		ok(t, b.Break(t.Context(), "x", l.Token()))
		isBroken(t, l)
	})
}
