package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A shutNode refuses connections while it is down.
type shutNode struct{ *deadNode }

func (n shutNode) Release(ctx context.Context, h *backend.Hold) error {
	if n.dead.Load() {
		return errDead
	}
	return n.Backend.Release(ctx, h)
}

func (n shutNode) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	for _, h := range holds {
		report(h, n.Release(ctx, h))
	}
}

// Of three nodes one refuses connections when a lock is taken, and another when it is unlocked: never more
// than one is down. The lock is free at once, and Unlock says so.
func TestUnlockWhileNodesRestartInTurn(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		nodes, all := make([]shutNode, 3), make([]backend.Backend, 3)
		for i := range nodes {
			nodes[i] = shutNode{&deadNode{Backend: memory.New(s[i])}}
			all[i] = nodes[i]
		}
		c := over(t, all, nil)
		ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing)) // all nodes have answered
		synctest.Wait()
		nodes[2].dead.Store(true)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait()
		nodes[2].dead.Store(false)
		nodes[1].dead.Store(true)
		err = l.Unlock(t.Context())
		other, free := s.open(t, nil).try("x")
		ok(t, free)
		ok(t, other.Unlock(t.Context()))
		nodes[1].dead.Store(false)
		ok(t, err)
	})
}
