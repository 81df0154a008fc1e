package quorum_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A process asks for more locks at once than it can have the answers of in the time of a first answer, with two
// goroutines for each of the last of them. Nodes answer all the time: all get their locks, later.
func TestTwoWaitForEachOfTooManyLocks(t *testing.T) {
	const trip, callers, last = 150 * time.Millisecond, 256 * 24, 512
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.far(t, trip, trip, trip)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		var all sync.WaitGroup
		var failed atomic.Int64
		var why atomic.Value
		start := time.Now()
		for i := range callers + last {
			all.Go(func() {
				if err := dlock.Do(t.Context(), c.Mutex(fmt.Sprint("x", min(i, 2*callers-i-1))), nothing); err != nil {
					failed.Add(1)
					why.Store(err)
				}
			})
		}
		all.Wait()
		must(t, time.Since(start) > backend.FirstAnswer, "it took no longer than %v", time.Since(start))
		must(t, failed.Load() == 0, "%d of %d have failed: %v", failed.Load(), callers+last, why.Load())
		s.empty(t)
	})
}

// No node answers, and more ask for locks than have places in the crowd, three goroutines for each. All are told that
// in the time of a first answer.
func TestThreeWaitForEachOfManyLocksInVain(t *testing.T) {
	const locks = 600
	ripe(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		s.freeze(3)
		defer s.thaw()
		var all sync.WaitGroup
		var longest atomic.Int64
		start := time.Now()
		for i := range 3 * locks {
			all.Go(func() {
				err := dlock.Do(t.Context(), c.Mutex(fmt.Sprint("x", i%locks)), nothing)
				is(t, err, dlock.ErrUnavailable)
				longest.Store(max(longest.Load(), int64(time.Since(start))))
			})
		}
		all.Wait()
		took := time.Duration(longest.Load())
		must(t, took < backend.FirstAnswer+500*time.Millisecond, "it took %v", took)
	})
}
