package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// An entry waits for its turn under a lease. When that has come the outer lease
// ends, and the lock is passed on: it is another's, who stays alone.
func TestEntryIntoALockThatWasPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 30 {
			var hook func()
			c := client(t, memory.New(nil), dlock.Options{Hooks: dlock.Hooks{Waiting: func(context.Context, dlock.WaitingEvent) {
				if f := hook; f != nil {
					hook = nil
					f()
				}
			}}})
			m := c.Mutex("x")
			outer := lock(t, m)
			under := context.WithoutCancel(outer.Context(t.Context()))
			inner, err := m.Lock(under)
			is(t, err, nil)
			var next *dlock.Lease
			done := queueUp(t, m, 1, func(l *dlock.Lease) { next = l })
			hook = func() { // the next entry is in the queue, and asks for nothing yet
				unlock(t, inner)
				unlock(t, outer)
				done.Wait()
			}
			_, err = m.Lock(under)
			is(t, err, dlock.ErrUnlocked)
			is(t, next.Err(), nil)
			unlock(t, next)
		}
	})
}

// Who asks for more than it has is told at once, whoever else is in the lock with it.
func TestUpgradeBesideAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := client(t, memory.New(nil), dlock.Options{}).RWMutex("x")
		outer, err := m.RLock(t.Context())
		is(t, err, nil)
		under := outer.Context(t.Context())
		beside, err := m.RLock(under)
		is(t, err, nil)
		waiting, cancel := context.WithTimeout(under, time.Minute)
		defer cancel()
		_, err = m.Lock(waiting)
		is(t, err, dlock.ErrUpgrade)
		unlock(t, beside)
		unlock(t, outer)
	})
}

// A writer waits for its turn under a lease that becomes a reader's meanwhile.
func TestEntryIntoALockThatWasDowngraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := client(t, memory.New(nil), dlock.Options{}).RWMutex("x")
		outer := lock(t, m)
		under := outer.Context(t.Context())
		reader, err := m.RLock(under)
		is(t, err, nil)
		entered := make(chan error, 1)
		go func() {
			_, err := m.Lock(under)
			entered <- err
		}()
		synctest.Wait()
		is(t, outer.Downgrade(t.Context()), nil)
		unlock(t, reader)
		is(t, <-entered, dlock.ErrUpgrade)
		unlock(t, outer)
	})
}

// slowCount has the server hear of the second change of a count late.
type slowCount struct {
	*memory.Backend
	heard chan struct{}
}

func (b slowCount) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	if entries == 1 {
		<-b.heard
	}
	return b.Backend.Reenter(ctx, h, entries, seq)
}

// Close gives back a lock while an entry is being unlocked, or made: the server hears of that
// after the release, and knows the hold no longer. The lock was not lost.
func TestCloseBesideAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := overtakenCount{memory.New(nil), 1, make(chan struct{})}
		c := client(t, b, dlock.Options{})
		outer := lock(t, c.Mutex("x"))
		inner, err := c.Mutex("x").Lock(outer.Context(t.Context()))
		is(t, err, nil)
		unlocked := make(chan error, 1)
		go func() { unlocked <- inner.Unlock(context.Background()) }()
		synctest.Wait()
		is(t, c.Close(t.Context()), nil)
		is(t, <-unlocked, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		b := overtakenCount{memory.New(nil), 2, make(chan struct{})}
		c := client(t, b, dlock.Options{})
		outer := lock(t, c.Mutex("x"))
		under := context.WithoutCancel(outer.Context(t.Context()))
		entered := make(chan error, 1)
		go func() {
			_, err := c.Mutex("x").Lock(under)
			entered <- err
		}()
		synctest.Wait()
		is(t, c.Close(t.Context()), nil)
		is(t, <-entered, dlock.ErrClosed)
	})
}

// overtakenCount has the server hear of a change of a count after the release of the hold.
type overtakenCount struct {
	*memory.Backend
	entries  int
	released chan struct{}
}

func (b overtakenCount) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	if entries == b.entries {
		<-b.released
	}
	return b.Backend.Reenter(ctx, h, entries, seq)
}

func (b overtakenCount) Release(ctx context.Context, h *backend.Hold) error {
	err := b.Backend.Release(ctx, h)
	close(b.released)
	time.Sleep(time.Millisecond) // of virtual time: the count is answered first
	return err
}

// Two leases on one hold are unlocked at once, and the server hears of the last one
// first.
func TestUnlocksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slowCount{memory.New(nil), make(chan struct{})}
		m := client(t, b, dlock.Options{}).Mutex("x")
		outer := lock(t, m)
		inner, err := m.Lock(outer.Context(t.Context()))
		is(t, err, nil)
		unlocked := make(chan error, 1)
		go func() { unlocked <- outer.Unlock(t.Context()) }()
		synctest.Wait()
		unlock(t, inner)
		close(b.heard)
		is(t, <-unlocked, nil)
	})
}

// The server is silent. What an entry that fails leaves to be told to it hardly
// keeps the caller.
func TestEntryKeepsToItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{})
		m := a.Mutex("x")
		outer := lock(t, m)
		ctx, cancel := context.WithTimeout(outer.Context(t.Context()), time.Second)
		defer cancel()
		ba.Cut()
		start := time.Now()
		_, err := m.Lock(ctx)
		is(t, err, dlock.ErrUnavailable)
		if took := time.Since(start); took > time.Second+50*time.Millisecond {
			t.Errorf("took %v", took)
		}
		ba.Heal()
	})
}

// The server is silent, and the context has no end: nothing that is to be told to the
// server is waited for once more.
func TestEntryOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{})
		m := a.Mutex("x")
		outer := lock(t, m)
		ba.Cut()
		start := time.Now()
		_, err := m.TryLock(outer.Context(t.Context()))
		is(t, err, dlock.ErrUnavailable)
		if took := time.Since(start); took > 3*time.Second+50*time.Millisecond {
			t.Errorf("took %v", took)
		}
		ba.Heal()
	})
}

// The context of an entry is also that of a lease on another lock, which is lost while the
// server is asked: that says nothing of the lock that is entered.
func TestEntryUnderAnotherLockThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{})
		m := a.Mutex("x")
		outer := lock(t, m)
		other := lock(t, a.Mutex("y", dlock.WithMaxHold(time.Second)))
		ba.Cut()
		_, err := m.Lock(other.Context(outer.Context(t.Context())))
		is(t, err, dlock.ErrUnavailable)
		is(t, other.Err(), dlock.ErrLost)
		ba.Heal()
		is(t, outer.Err(), nil)
		unlock(t, outer)
	})
}

// The same of Downgrade and Unlock: a lock is not given up for lost that the server still
// has, and Hooks hear of no loss.
func TestEndUnderAnotherLockThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		_, ba, a, b := pair(t, dlock.Options{Hooks: dlock.Hooks{Lost: func(e dlock.LostEvent) {
			if e.Name == "x" {
				lost++
			}
		}}})
		m := a.Mutex("x")
		lease := lock(t, m)
		under := func() context.Context {
			return lock(t, a.Mutex("y", dlock.WithMaxHold(time.Second))).Context(t.Context())
		}
		ctx := under()
		ba.Cut()
		is(t, lease.Downgrade(ctx), dlock.ErrUnavailable)
		is(t, lease.Err(), nil)
		ba.Heal()
		ctx = under()
		ba.Cut()
		is(t, lease.Unlock(ctx), dlock.ErrUnavailable)
		ba.Heal()
		time.Sleep(5 * time.Second) // the rest of the lease is longer
		unlock(t, lock(t, b.Mutex("x")))
		if lost > 0 {
			t.Errorf("%d losses", lost)
		}
	})
}

// An entry that is unlocked before those made under it keeps its place among its
// siblings for them, in whatever order all are unlocked.
func TestUnlockInAnyOrder(t *testing.T) {
	const outer, child, grandchild, great = 0, 1, 2, 3
	for _, order := range [][]int{
		{child, grandchild, great}, {child, great, grandchild}, {grandchild, child, great},
		{grandchild, great, child}, {great, child, grandchild}, {great, grandchild, child},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := client(t, memory.New(nil), dlock.Options{}).RWMutex("x")
			leases := []*dlock.Lease{lock(t, m)}
			under := []context.Context{leases[outer].Context(t.Context())}
			for i := range 3 {
				l, err := m.Lock(under[i])
				is(t, err, nil)
				leases, under = append(leases, l), append(under, l.Context(under[i]))
			}
			for _, i := range order {
				for _, try := range []func(context.Context) (*dlock.Lease, error){m.TryLock, m.TryRLock} {
					_, err := try(under[outer])
					is(t, err, dlock.ErrHeld)
				}
				unlock(t, leases[i])
			}
			sibling, err := m.TryLock(under[outer])
			is(t, err, nil)
			unlock(t, leases[outer])
			unlock(t, sibling)
			unlock(t, lock(t, m))
		})
	}
}

// Who waits under an entry that is unlocked is turned away, and leaves nothing that
// would keep the entry's siblings waiting.
func TestWaiterUnderAnEntryThatIsUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := client(t, memory.New(nil), dlock.Options{}).Mutex("x")
		for range 30 {
			outer := lock(t, m)
			under := outer.Context(t.Context())
			child, err := m.Lock(under)
			is(t, err, nil)
			grandchild, err := m.Lock(child.Context(under))
			is(t, err, nil)
			waits := make(chan *dlock.Lease, 1)
			go func() {
				lease, _ := m.Lock(context.WithoutCancel(child.Context(under)))
				waits <- lease
			}()
			synctest.Wait()
			go func() { _ = grandchild.Unlock(t.Context()) }()
			unlock(t, child)
			if early := <-waits; early != nil { // it came in before the child ended
				_, err := m.TryLock(under)
				is(t, err, dlock.ErrHeld)
				unlock(t, early)
			}
			synctest.Wait()
			sibling, err := m.TryLock(under)
			is(t, err, nil)
			unlock(t, sibling)
			unlock(t, outer)
		}
	})
}
