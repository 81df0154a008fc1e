package etcd_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestInspectOfALongQueueAtADistance asks who waits, far from the server. Each part of the answer
// comes in time.
func TestInspectOfALongQueueAtADistance(t *testing.T) {
	const waiters = 4000
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	c := openQuiet(t, p)
	var all sync.WaitGroup
	for part := range 8 {
		all.Go(func() {
			for i := part; i < waiters; i += 8 {
				if _, err := admin.Put(timed(t), fmt.Sprintf("%s/l/crowd/w/%d", prefix(t), i), "+label"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	p.Delay(faultnet.BothWays, 250*time.Millisecond, 0)
	start := time.Now()
	s, err := c.Inspect(timed(t), "crowd")
	must(t, err)
	if len(s.Holders) != 1 || len(s.Waiters) != waiters-1 {
		t.Errorf("%d hold, %d wait", len(s.Holders), len(s.Waiters))
	}
	if took := time.Since(start); took < backend.FirstAnswer {
		t.Errorf("it took %v: too near to tell", took)
	}
}
