package dlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// lockedByName returns the named locks of c, with x locked.
func lockedByName(t *testing.T, c *dlock.Client) *dlock.NamedLocks {
	t.Helper()
	locks := c.NamedLocks()
	_, err := locks.Lock(t.Context(), "x")
	is(t, err, nil)
	return locks
}

// waitByName waits for x in another goroutine, and returns where the error will be.
func waitByName(t *testing.T, locks *dlock.NamedLocks) <-chan error {
	waited := make(chan error)
	go func() {
		_, err := locks.Lock(t.Context(), "x")
		waited <- err
	}()
	synctest.Wait()
	return waited
}

func TestNamedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		locks := a.NamedLocks()
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrNotHeld)
		_, err := locks.Relock(t.Context(), "x")
		is(t, err, dlock.ErrNotHeld)

		lease, err := locks.Lock(t.Context(), "x")
		is(t, err, nil)
		if locks.Lease("x") != lease || locks.Lease("y") != nil {
			t.Errorf("x has lease %p, want %p; y has %p", locks.Lease("x"), lease, locks.Lease("y"))
		}
		for _, l := range []dlock.Locker{a.Mutex("x"), b.Mutex("x")} {
			_, err = l.TryLock(t.Context())
			is(t, err, dlock.ErrHeld)
		}
		_, err = locks.TryLock(t.Context(), "x")
		is(t, err, dlock.ErrHeld)
		_, err = locks.Lock(lease.Context(t.Context()), "x")
		is(t, err, dlock.ErrReentry)
		if again, err := locks.Relock(t.Context(), "x"); again != lease || err != nil {
			t.Errorf("Relock of a live lock: %p, %v; want %p", again, err, lease)
		}

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		is(t, locks.Unlock(ended, "x"), nil)
		is(t, lease.Err(), dlock.ErrUnlocked)
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrNotHeld)
		if locks.Lease("x") != nil {
			t.Error("a lease is kept after Unlock")
		}
		unlock(t, lock(t, b.Mutex("x")))
	})
}

func TestNamedLocksTellWhatIsWrong(t *testing.T) {
	c := client(t, memory.New(memory.NewServer()), dlock.Options{})
	for _, test := range []struct {
		locks *dlock.NamedLocks
		name  string
		want  error
	}{
		{c.NamedLocks(), "", dlock.ErrInvalidName},
		{c.NamedLocks(dlock.WithTTL(-1)), "x", dlock.ErrInvalidTTL},
		{(*dlock.Client)(nil).NamedLocks(), "x", dlock.ErrInvalidConfig},
		{new(dlock.NamedLocks), "x", dlock.ErrInvalidConfig},
	} {
		_, err := test.locks.Lock(t.Context(), test.name)
		is(t, err, test.want)
		_, err = test.locks.TryLock(t.Context(), test.name)
		is(t, err, test.want)
		is(t, test.locks.Unlock(t.Context(), test.name), dlock.ErrNotHeld)
	}
}

// Who has lost a lock learns of it from Unlock, which leaves alone whoever has it now.
func TestNamedLockLostBetweenTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{})
		locks := lockedByName(t, a)
		s.Evict("x")
		synctest.Wait()
		other := lock(t, b.Mutex("x"))
		is(t, locks.Lease("x").Err(), dlock.ErrLost)
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrLost)
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrNotHeld)
		time.Sleep(time.Hour)
		is(t, other.Err(), nil)
		unlock(t, other)
	})
}

// A caller that has lost its lock and not unlocked it keeps the others of its process out,
// also those that waited already, and only those.
func TestNamedLockLostBelongsToItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{})
		locks := lockedByName(t, a)
		waited := waitByName(t, locks)
		s.Evict("x")
		is(t, <-waited, dlock.ErrHeld)
		_, err := locks.Lock(t.Context(), "x")
		is(t, err, dlock.ErrHeld)
		_, err = locks.TryLock(t.Context(), "x")
		is(t, err, dlock.ErrHeld)
		unlock(t, lock(t, b.Mutex("x")))
		unlock(t, lock(t, a.Mutex("x")))

		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrLost)
		_, err = locks.Lock(t.Context(), "x")
		is(t, err, nil)
		is(t, locks.Unlock(t.Context(), "x"), nil)
	})
}

// A lock that nobody gets, because its name belongs to another caller, is not kept for the
// minimum hold.
func TestNamedLockForNobodyIsFreeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{})
		locks := a.NamedLocks(dlock.WithMinHold(time.Hour))
		_, err := locks.Lock(t.Context(), "x")
		is(t, err, nil)
		waited := waitByName(t, locks)
		s.Evict("x")
		is(t, <-waited, dlock.ErrHeld)
		synctest.Wait()
		other, err := b.Mutex("x").TryLock(t.Context())
		is(t, err, nil)
		unlock(t, other)
	})
}

// That a lease is unlocked by itself does not give its name to somebody else: the Unlock
// by name is still to come.
func TestNamedLockUnlockedByItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		locks := a.NamedLocks()
		lease, err := locks.Lock(t.Context(), "x")
		is(t, err, nil)
		unlock(t, lease)
		_, err = locks.TryLock(t.Context(), "x")
		is(t, err, dlock.ErrHeld)
		unlock(t, lock(t, b.Mutex("x")))
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrUnlocked)
		_, err = locks.Lock(t.Context(), "x")
		is(t, err, nil)
	})
}

func TestRelock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{})
		locks := a.NamedLocks()
		first, err := locks.Lock(t.Context(), "x")
		is(t, err, nil)
		s.Evict("x")
		synctest.Wait()
		other := lock(t, b.Mutex("x"))

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = locks.Relock(short, "x")
		is(t, err, dlock.ErrHeld)
		is(t, locks.Lease("x").Err(), dlock.ErrLost)

		time.AfterFunc(time.Minute, func() { unlock(t, other) })
		again, err := locks.Relock(t.Context(), "x")
		is(t, err, nil)
		if again.Token() <= other.Token() || other.Token() <= first.Token() || locks.Lease("x") != again {
			t.Errorf("tokens %d, %d, %d", first.Token(), other.Token(), again.Token())
		}
		is(t, locks.Unlock(t.Context(), "x"), nil)
		unlock(t, lock(t, b.Mutex("x")))
	})
}

// A lock that Relock gets after Unlock is nobody's.
func TestRelockAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{})
		locks := lockedByName(t, a)
		s.Evict("x")
		synctest.Wait()
		other := lock(t, b.Mutex("x"))
		relocked := make(chan error)
		go func() {
			_, err := locks.Relock(t.Context(), "x")
			relocked <- err
		}()
		synctest.Wait()
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrLost)
		unlock(t, other)
		is(t, <-relocked, dlock.ErrNotHeld)
		_, err := b.Mutex("x").TryLock(t.Context())
		is(t, err, nil)
	})
}

func TestCloseEndsNamedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		locks := lockedByName(t, a)
		waited := waitByName(t, locks)
		is(t, a.Close(t.Context()), nil)
		is(t, <-waited, dlock.ErrClosed)
		unlock(t, lock(t, b.Mutex("x")))
		_, err := locks.Lock(t.Context(), "x")
		is(t, err, dlock.ErrClosed)
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrClosed)
		is(t, locks.Unlock(t.Context(), "x"), dlock.ErrNotHeld)
	})
}

// Goroutines lock and unlock by name while the server takes locks away: between Lock and
// Unlock a goroutine has the name to itself in its process.
func TestNamedLocksInManyGoroutines(t *testing.T) {
	s := memory.NewServer()
	locks := client(t, memory.New(s), dlock.Options{}).NamedLocks()
	var inside [3]atomic.Int32
	var done, lost atomic.Int32
	stop := make(chan struct{})
	var evictor, workers sync.WaitGroup
	evictor.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				s.Evict(strconv.Itoa(rand.IntN(len(inside))))
			}
		}
	})
	lockOnce := func(i int) {
		name, lock := strconv.Itoa(i), locks.Lock
		if rand.IntN(4) == 0 {
			lock = locks.TryLock
		}
		if _, err := lock(t.Context(), name); err != nil {
			if !errors.Is(err, dlock.ErrHeld) && !errors.Is(err, dlock.ErrLost) {
				t.Error(err)
			}
			return
		}
		if n := inside[i].Add(1); n != 1 {
			t.Errorf("%d goroutines have name %s", n, name)
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		if rand.IntN(2) == 0 {
			if _, err := locks.Relock(t.Context(), name); err != nil && !errors.Is(err, dlock.ErrLost) {
				t.Error(err)
			}
		}
		inside[i].Add(-1)
		switch err := locks.Unlock(t.Context(), name); {
		case errors.Is(err, dlock.ErrLost):
			lost.Add(1)
		case err != nil:
			t.Error(err)
		}
		done.Add(1)
	}
	for range 16 {
		workers.Go(func() {
			for done.Load() < 1000 || lost.Load() < 10 {
				lockOnce(rand.IntN(len(inside)))
			}
		})
	}
	workers.Wait()
	close(stop)
	evictor.Wait()
	for i := range inside {
		if locks.Lease(strconv.Itoa(i)) != nil {
			t.Errorf("a lease of %d is kept", i)
		}
	}
}
