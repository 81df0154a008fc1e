package quorum_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A deadNode refuses everything while it is dead. Its connection breaks then: the first ping
// after that fails.
type deadNode struct {
	*memory.Backend
	dead, broken atomic.Bool
}

var errDead = errors.New("connection refused")

func (n *deadNode) state() error {
	if n.dead.Load() || n.broken.Swap(false) {
		return errDead
	}
	return nil
}

func (n *deadNode) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if n.dead.Load() {
		return nil, errDead
	}
	return n.Backend.Vote(ctx, r, b)
}

func (n *deadNode) Ping(ctx context.Context) (string, error) {
	if err := n.state(); err != nil {
		return "", err
	}
	return n.Backend.Ping(ctx)
}

// A renewingNode tells how often it has renewed.
type renewingNode struct {
	*memory.Backend
	renewals chan struct{}
}

func (n *renewingNode) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	n.renewals <- struct{}{}
	n.Backend.Renew(ctx, holds, report)
}

// A node that was away when the lock was taken has it with the first renewal after it is back,
// also where nobody but the holder asks for anything.
func TestNodeIsBackBeforeARenewal(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		away := &deadNode{Backend: memory.New(s[0])}
		other := &renewingNode{memory.New(s[1]), make(chan struct{})}
		all := s.links()
		all[0], all[1] = away, other
		c := over(t, all, nil)
		away.dead.Store(true)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		for range 2 {
			<-other.renewals
		}
		time.Sleep(time.Second) // after that renewal
		away.broken.Store(true)
		away.dead.Store(false)
		<-other.renewals
		synctest.Wait()
		got, err := memory.New(s[0]).Inspect(t.Context(), "x")
		ok(t, err)
		if len(got.Holders) != 1 || got.Holders[0].Token != l.Token() {
			t.Errorf("after a renewal the node knows %+v", got.Holders)
		}
		go func() {
			for range other.renewals {
			}
		}()
		ok(t, l.Unlock(t.Context()))
		synctest.Wait()
		close(other.renewals)
	})
}

// mutePings is a node that grants nothing while it is deaf, and answers no ping, however long
// that is waited for.
type mutePings struct {
	*memory.Backend
	deaf atomic.Bool
}

func (n *mutePings) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if n.deaf.Load() {
		return nil, errDead
	}
	return n.Backend.Vote(ctx, r, b)
}

func (n *mutePings) Ping(ctx context.Context) (string, error) {
	if n.deaf.Load() {
		<-ctx.Done()
		return "", backend.WaitEnded(ctx, false)
	}
	return n.Backend.Ping(ctx)
}

// The end of a client waits for no ping: the node may be on a connection of somebody's own,
// which stays open.
func TestCloseWhileANodeIsPinged(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		node := &mutePings{Backend: memory.New(s[0])}
		all := s.links()
		all[0] = node
		c := over(t, all, nil)
		node.deaf.Store(true)
		for range 2 { // the second finds the node silent, and has it pinged
			l, err := c.Mutex("x").Lock(t.Context())
			ok(t, err)
			ok(t, l.Unlock(t.Context()))
		}
		start := time.Now()
		ok(t, c.Close(context.Background()))
		if took := time.Since(start); took > time.Second/2 {
			t.Errorf("close took %v", took)
		}
		time.Sleep(ttl) // until no ping is out, however long that may be
	})
}
