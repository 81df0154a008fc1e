package quorum_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// unlockIsUnsure fails the test if Unlock says that all is well, beside a node that is silent and another
// that has the hold of a request that was not answered.
func (s nodes) unlockIsUnsure(t *testing.T, silent int, l *dlock.Lease) {
	t.Helper()
	s[silent].Freeze()
	defer s[silent].Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	is(t, l.Unlock(ctx), dlock.ErrUnavailable)
	_, err := s.open(t, nil).try("x")
	is(t, err, dlock.ErrHeld)
}

// A denyingVoter grants, and its client does not hear of that: from then on the node denies all that it is
// asked, as one whose password has changed.
type denyingVoter struct{ *deadNode }

var errDenied = backend.Fail(backend.ErrAuth, errors.New("wrong password"))

func (n denyingVoter) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if _, err := n.Backend.Vote(ctx, r, b); err != nil {
		return nil, err
	}
	n.dead.Store(true)
	return nil, errDead
}

func (n denyingVoter) Ping(ctx context.Context) (string, error) {
	if n.dead.Load() {
		return "", errDenied
	}
	return n.Backend.Ping(ctx)
}

// A node that denies a ping denies what takes back the grant of which nobody has heard, too.
func TestUnlockBesideADenialAfterAVote(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c := over(t, []backend.Backend{memory.New(s[0]), memory.New(s[1]), denyingVoter{&deadNode{Backend: memory.New(s[2])}}}, nil)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait() // the third has granted
		s.unlockIsUnsure(t, 1, l)
	})
}

// A crossingNode dies with a vote once crossing is set, which it has granted, and answers a ping before: that
// answer comes after the end of the vote.
type crossingNode struct {
	*deadNode
	crossing atomic.Bool
	granted  chan struct{}
}

const crossed = 20 * time.Millisecond

func (n *crossingNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if !n.crossing.Load() || n.dead.Load() {
		return n.deadNode.Vote(ctx, r, b)
	}
	if _, err := n.Backend.Vote(ctx, r, b); err != nil {
		return nil, err
	}
	close(n.granted)
	time.Sleep(crossed)
	n.dead.Store(true)
	return nil, errDead
}

func (n *crossingNode) Ping(ctx context.Context) (string, error) {
	version, err := n.deadNode.Ping(ctx)
	select {
	case <-n.granted:
		time.Sleep(2 * crossed)
	default:
	}
	return version, err
}

// A node is asked again for a hold that it has not granted, while that is unlocked, and dies as it grants. What
// it has answered to a ping before says nothing of that.
func TestUnlockBesideAnAnswerFromBefore(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		n := &crossingNode{deadNode: &deadNode{Backend: memory.New(s[2])}, granted: make(chan struct{})}
		c := over(t, []backend.Backend{memory.New(s[0]), memory.New(s[1]), n}, nil)
		ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing)) // all nodes have answered
		synctest.Wait()
		n.dead.Store(true)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait()
		n.crossing.Store(true)
		n.dead.Store(false)
		<-n.granted // with a renewal, which the others answer at once
		synctest.Wait()
		s.unlockIsUnsure(t, 1, l)
	})
}

// A farNode takes a moment to hear of a request that waits. Who leaves meanwhile does not wait for that.
type farNode struct {
	*memory.Backend
	asked chan struct{}
}

func (n farNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if r.Wait {
		select {
		case n.asked <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return nil, backend.WaitEnded(ctx, false)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return n.Backend.Vote(ctx, r, b)
}

// A node is well, and is asked anew for a hold that it has refused, when that is unlocked and another node
// is down. Unlock asks the first whether it answers, and does not say that the lock may be held.
func TestUnlockWhileANodeIsAsked(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		far := farNode{memory.New(s[2]), make(chan struct{}, 1)}
		second := shutNode{&deadNode{Backend: memory.New(s[1])}}
		c := over(t, []backend.Backend{memory.New(s[0]), second, far}, nil)
		stranger := memory.New(s[2])
		part, err := stranger.Acquire(t.Context(), backend.Request{Name: "x", Mode: backend.Exclusive, TTL: ttl})
		ok(t, err)
		l, err := c.Mutex("x").TryLock(t.Context())
		ok(t, err)
		<-far.asked
		ok(t, stranger.Release(t.Context(), part))
		second.dead.Store(true)
		err = l.Unlock(t.Context())
		second.dead.Store(false)
		ok(t, err)
	})
}

// resetNode is a dead node that is back: the next vote there is lost a while after it has been sent, and
// pings take long.
type resetNode struct {
	*deadNode
	asked chan struct{}
	slow  bool
}

func (n *resetNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if !n.slow || n.dead.Load() {
		return n.deadNode.Vote(ctx, r, b)
	}
	close(n.asked)
	time.Sleep(100 * time.Millisecond)
	return nil, errDead
}

func (n *resetNode) Ping(ctx context.Context) (string, error) {
	version, err := n.deadNode.Ping(ctx)
	if n.slow {
		time.Sleep(20 * time.Millisecond)
	}
	return version, err
}

// One more answer is lost while Unlock asks the node whether it is back: it is asked again.
func TestUnlockAsksAgain(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		n := &resetNode{deadNode: &deadNode{Backend: memory.New(s[2])}, asked: make(chan struct{})}
		second := shutNode{&deadNode{Backend: memory.New(s[1])}}
		c := over(t, []backend.Backend{memory.New(s[0]), second, n}, nil)
		ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing))
		synctest.Wait()
		n.dead.Store(true)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait()
		n.slow = true
		n.dead.Store(false)
		<-n.asked
		time.Sleep(90 * time.Millisecond) // the ping of Unlock is under way as the answer is lost
		second.dead.Store(true)
		err = l.Unlock(t.Context())
		second.dead.Store(false)
		ok(t, err)
	})
}
