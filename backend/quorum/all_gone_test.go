package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// TestEveryNodeIsBack has all nodes be needed, all silent, and the first gone, as after an outage in which the
// others have answered once more. All are back, and asked.
func TestEveryNodeIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []backend.Backend
		for range 3 {
			node := memory.New(memory.NewServer())
			node.Delay(50 * time.Millisecond)
			all = append(all, node)
		}
		b, err := New(all, &Options{Need: 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range b.nodes {
			n.silent.Store(true)
		}
		b.nodes[0].gone.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h, err := b.Acquire(ctx, backend.Request{Name: "x", ID: backend.ID{Client: "c", Seq: 1}, TTL: 10 * time.Second, Wait: true})
		if err != nil {
			t.Errorf("a free lock is not taken: %v", err)
		} else if err := b.Release(ctx, h); err != nil {
			t.Error(err)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
