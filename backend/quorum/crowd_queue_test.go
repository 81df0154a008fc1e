package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A process asks for more locks at once than it can have the answers of in the time of a first answer, with two
// goroutines for each of the last of them. Nodes answer all the time: all get their locks, later.
func TestTwoWaitForEachOfTooManyLocks(t *testing.T) {
	twoForEachOfTooMany(t, do, do)
}

// The first of the two only tries: whoever waits behind that, or tries, knows what that knows.
func TestTwoBehindATryOfEachOfTooManyLocks(t *testing.T) {
	twoForEachOfTooMany(t, tryDo, do)
	twoForEachOfTooMany(t, tryDo, tryDo)
}

func do(ctx context.Context, m *dlock.Mutex) error { return dlock.Do(ctx, m, nothing) }

// tryDo is do for who does not wait if the lock is held.
func tryDo(ctx context.Context, m *dlock.Mutex) error {
	if err := dlock.TryDo(ctx, m, nothing); !errors.Is(err, dlock.ErrHeld) {
		return err
	}
	return nil
}

// twoForEachOfTooMany has very many locks asked for as the first does, and then some of the last of them as the second
// does.
func twoForEachOfTooMany(t *testing.T, first, second func(context.Context, *dlock.Mutex) error) {
	t.Helper()
	const trip, callers, last = 450 * time.Millisecond, 256 * 8, 512
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.far(t, trip, trip, trip)
		ok(t, dlock.Do(t.Context(), c.Mutex("warm"), nothing))
		var all sync.WaitGroup
		var failed atomic.Int64
		var why atomic.Value
		start := time.Now()
		for i := range callers + last {
			if i == callers {
				synctest.Wait()
			}
			all.Go(func() {
				how := first
				if i >= callers {
					how = second
				}
				if err := how(t.Context(), c.Mutex(fmt.Sprint("x", min(i, 2*callers-i-1)))); err != nil {
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

// Nodes fall silent, and are back before the time of a first answer is over. Those who have had no place in the crowd
// have one when the others are answered, and the time of a first answer from then on.
func TestPlacesAsTheTimeEnds(t *testing.T) {
	const trip, callers = 400 * time.Millisecond, 2 * 256
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.far(t, trip, trip, trip)
		ok(t, do(t.Context(), c.Mutex("warm")))
		s.freeze(3)
		time.AfterFunc(backend.FirstAnswer-trip, s.thaw)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { ok(t, do(t.Context(), c.Mutex(fmt.Sprint("x", i)))) })
		}
		all.Wait()
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
		start := time.Now()
		for i := range 3 * locks {
			all.Go(func() {
				err := dlock.Do(t.Context(), c.Mutex(fmt.Sprint("x", i%locks)), nothing)
				is(t, err, dlock.ErrUnavailable)
			})
		}
		all.Wait()
		took := time.Since(start)
		must(t, took < backend.FirstAnswer+500*time.Millisecond, "it took %v", took)
	})
}
