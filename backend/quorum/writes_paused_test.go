package quorum_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A readOnly node keeps all waiting that may write, and answers questions, as a Redis does after CLIENT PAUSE
// WRITE. What it keeps waiting ends with the limit of its client.
type readOnly struct {
	*memory.Backend
	since *atomic.Bool // it does by now
}

func (n readOnly) wait(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Second):
		return backend.ErrUnavailable
	case <-ctx.Done():
		return backend.Fail(backend.ErrUnavailable, ctx.Err())
	}
}

func (n readOnly) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if !n.since.Load() {
		return n.Backend.Vote(ctx, r, b)
	}
	return nil, n.wait(ctx)
}

func (n readOnly) Ping(ctx context.Context) (string, error) {
	if !n.since.Load() {
		return n.Backend.Ping(ctx)
	}
	return "", n.wait(ctx)
}

// A program looks at a lock now and then, while the front takes no writes. Its locks do not wait for that node
// again and again.
func TestQuestionsToANodeThatTakesNoWrites(t *testing.T) {
	for what, before := range map[string]bool{"since a moment": false, "since before the client was opened": true} {
		t.Run(what, func(t *testing.T) {
			ripe(t, 3, func(t *testing.T, s nodes) {
				front := s.front("x")
				all := s.links()
				var since atomic.Bool
				all[front] = readOnly{all[front].(*memory.Backend), &since}
				c := over(t, all, nil)
				since.Store(before)
				for range 10 { // it learns how long nodes take, or that one is silent
					ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing))
				}
				since.Store(true)
				ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing))
				time.Sleep(10 * time.Second)
				var waited time.Duration
				for range 20 {
					_, err := c.Inspect(t.Context(), "y")
					ok(t, err)
					start := time.Now()
					l, err := c.Mutex("x").Lock(t.Context())
					ok(t, err)
					waited += time.Since(start)
					ok(t, l.Unlock(t.Context()))
					time.Sleep(time.Second)
				}
				if waited > 200*time.Millisecond {
					t.Errorf("20 locks have waited for %v", waited)
				}
			})
		})
	}
}
