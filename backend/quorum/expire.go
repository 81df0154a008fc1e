package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var _ backend.Expirer = (*Backend)(nil)

// CanExpire reports whether every node is a backend.Expirer, and d no longer than any
// lease: a node that restarts waits for no more than that until it votes again.
func (b *Backend) CanExpire(d time.Duration) bool {
	if b.maxTTL > 0 && d > b.maxTTL {
		return false
	}
	return !slices.ContainsFunc(b.nodes, func(n *node) bool { return n.expirer == nil })
}

// Expire implements backend.Expirer. It is ErrUnsupported, and asks nobody, unless
// every node is a backend.Expirer.
func (b *Backend) Expire(ctx context.Context, bh *backend.Hold, d time.Duration) error {
	for i, n := range b.nodes {
		if n.expirer == nil {
			return backend.Fail(backend.ErrUnsupported, fmt.Errorf("node %d, %T", i+1, n.Backend))
		}
	}
	h := bh.State.(*hold)
	h.close()
	end := time.Now().Add(d)
	return h.tell(ctx, message{do: func(ctx context.Context, i int, nh *backend.Hold) error {
		return b.nodes[i].expirer.Expire(ctx, nh, max(time.Until(end), time.Millisecond))
	}})
}
