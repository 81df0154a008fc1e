package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A process tries more locks at once than it can have the answers of in the time of a first answer. All are
// free, and nodes answer all the time: all tries get theirs, later.
func TestMoreTryAtOnceThanHaveTime(t *testing.T) {
	const trip, callers = 150 * time.Millisecond, 256 * 24
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.far(t, trip, trip, trip)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		var all sync.WaitGroup
		var failed atomic.Int64
		var why atomic.Value
		start := time.Now()
		for i := range callers {
			all.Go(func() {
				l, err := c.Mutex(fmt.Sprint("x", i)).TryLock(t.Context())
				if err != nil {
					failed.Add(1)
					why.Store(err)
					return
				}
				_ = l.Unlock(context.Background())
			})
		}
		all.Wait()
		must(t, time.Since(start) > backend.FirstAnswer, "it took no longer than %v", time.Since(start))
		must(t, failed.Load() == 0, "%d of %d tries of free locks have failed: %v", failed.Load(), callers, why.Load())
		s.empty(t)
	})
}
