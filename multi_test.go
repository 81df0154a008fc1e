package dlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// In whatever order the names are given, the locks are taken in one: two
// clients that want the same ones cannot wait for each other.
func TestMultiLocksInOneOrder(t *testing.T) {
	for _, names := range [][]string{{"a", "b"}, {"b", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			_, _, a, b := pair(t, dlock.Options{})
			first := lock(t, b.Mutex("a"))
			done := queueUp(t, a.Multi(names), 1, func(all *dlock.Lease) { unlock(t, all) })
			other, err := b.Mutex("b").TryLock(t.Context())
			if err != nil {
				t.Errorf("%v: b is locked before a: %v", names, err)
			} else {
				unlock(t, other)
			}
			unlock(t, first)
			done.Wait()
		})
	}
}

// What a multi-lock has had of its locks when it fails, nobody has held: that need
// not last.
func TestMultiThatFailsIsBrief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		other := lock(t, b.Mutex("b"))
		_, err := a.Multi([]string{"a", "b"}, dlock.WithMinHold(time.Hour)).TryLock(t.Context())
		is(t, err, dlock.ErrHeld)
		unlock(t, other)
		lease, err := b.Mutex("a").TryLock(t.Context())
		is(t, err, nil)
		unlock(t, lease)
	})
}

// The server falls silent while a multi-lock waits for its second lock.
func TestMultiKeepsToItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{})
		other := lock(t, b.Mutex("b"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		time.AfterFunc(time.Second, ba.Cut)
		start := time.Now()
		_, err := a.Multi([]string{"a", "b"}).Lock(ctx)
		is(t, err, dlock.ErrHeld)
		if took := time.Since(start); took > 2*time.Second+50*time.Millisecond {
			t.Errorf("took %v", took)
		}
		ba.Heal()
		unlock(t, other)
	})
}

// The longest time of a multi-lock begins when it has all its locks, which then end together.
// One that it waits for may be held for longer: those that it has are renewed meanwhile, and
// it keeps its place.
func TestMultiMaxHoldBeginsWithTheLastLock(t *testing.T) {
	for _, hold := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s, _, a, b := pair(t, dlock.Options{TTL: 10 * time.Second})
			third := client(t, memory.New(s), dlock.Options{})
			for range 3 { // also when a renewal is due, or under way
				other := lock(t, b.Mutex("b"))
				var isFirst atomic.Bool
				multi := queueUp(t, a.Multi([]string{"a", "b"}, dlock.WithMaxHold(hold)), 1, func(all *dlock.Lease) {
					isFirst.Store(true)
					got, until := time.Now(), all.Until()
					<-all.Done()
					if lasted := time.Since(got); lasted != hold || until.After(got.Add(hold)) {
						t.Errorf("lasted %v, and was to end after %v: want %v", lasted, until.Sub(got), hold)
					}
					is(t, all.Err(), dlock.ErrLost)
				})
				later := queueUp(t, third.Mutex("b"), 1, func(l *dlock.Lease) {
					if !isFirst.Load() {
						t.Error("who came later was first")
					}
					unlock(t, l)
				})
				time.Sleep(3*time.Minute + 1234*time.Millisecond)
				_, err := third.Mutex("a").TryLock(t.Context())
				is(t, err, dlock.ErrHeld)
				unlock(t, other)
				multi.Wait()
				later.Wait()
				unlock(t, lock(t, third.Mutex("a")))
			}
		})
	}
}

// The shortest time of a multi-lock begins when it has all its locks.
func TestMultiMinHoldBeginsWithTheLastLock(t *testing.T) {
	const hold = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		other := lock(t, b.Mutex("b"))
		var got time.Time
		multi := queueUp(t, a.Multi([]string{"a", "b"}, dlock.WithMinHold(hold)), 1, func(all *dlock.Lease) {
			got = time.Now()
			unlock(t, all)
		})
		time.Sleep(time.Minute)
		unlock(t, other)
		multi.Wait()
		for _, name := range []string{"a", "b"} {
			lease := lock(t, b.Mutex(name))
			if kept := time.Since(got); kept < hold || kept > hold+time.Second {
				t.Errorf("%s was kept for %v, want %v", name, kept, hold)
			}
			unlock(t, lease)
		}
	})
}

// A lock that a multi-lock enters again keeps the time of its own hold.
func TestMultiMaxHoldSparesWhatItEnters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memory.New(nil), dlock.Options{})
		outer := lock(t, c.Mutex("a"))
		all, err := c.Multi([]string{"a", "b"}, dlock.WithMaxHold(time.Second)).Lock(outer.Context(t.Context()))
		is(t, err, nil)
		<-all.Done()
		time.Sleep(time.Minute)
		is(t, outer.Err(), nil)
		unlock(t, outer)
	})
}

// silentAfter falls silent when it has granted a lock.
type silentAfter struct {
	*memory.Backend
	name string
}

func (b *silentAfter) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := b.Backend.Acquire(ctx, r)
	if r.Name == b.name {
		b.Cut()
	}
	return h, err
}

// The server falls silent between two locks of a multi-lock, and the context has no end:
// the first answer is waited for, and not that to what is given back.
func TestMultiOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &silentAfter{memory.New(nil), "a"}
		c := client(t, b, dlock.Options{})
		start := time.Now()
		_, err := c.Multi([]string{"a", "b"}).TryLock(t.Context())
		is(t, err, dlock.ErrUnavailable)
		if took := time.Since(start); took > 3*time.Second+50*time.Millisecond {
			t.Errorf("took %v", took)
		}
		b.Heal()
	})
}

// A multi-lock that is cut short has given back what it had when it returns: who
// asks next is not refused for nobody.
func TestMultiCutShortLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{})
		third := client(t, memory.New(s), dlock.Options{})
		other := lock(t, b.Mutex("b"))
		for range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := a.Multi([]string{"a", "b"}).Lock(ctx)
			cancel()
			is(t, err, dlock.ErrHeld, context.DeadlineExceeded)
			free, err := third.Mutex("a").TryLock(t.Context())
			is(t, err, nil)
			unlock(t, free)
		}
		unlock(t, other)
	})
}

// An evictor takes a away when it has granted b, once.
type evictor struct {
	*memory.Backend
	server *memory.Server
	once   bool
}

func (e *evictor) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := e.Backend.Acquire(ctx, r)
	if err == nil && r.Name == "b" && !e.once {
		e.once = true
		e.server.Evict("a")
		time.Sleep(600 * time.Millisecond) // its renewal tells of the loss
	}
	return h, err
}

// A multi-lock loses a part while it takes the next: it has neither then.
func TestMultiThatLosesAPartOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		o := dlock.Options{TTL: time.Second}
		c, other := client(t, &evictor{Backend: memory.New(s), server: s}, o), client(t, memory.New(s), dlock.Options{TTL: time.Second})
		_, err := c.Multi([]string{"a", "b"}).TryLock(t.Context())
		is(t, err, dlock.ErrLost)
		var e *dlock.Error
		if !errors.As(err, &e) || e.Op != "trylock" || e.Name != "a b" {
			t.Errorf("%v does not name the operation that failed", err)
		}
		time.Sleep(time.Minute)
		l, err := other.Mutex("b").TryLock(t.Context())
		if err != nil {
			t.Fatalf("a minute later the other lock: %v", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// cutAtEntry is cut off from the server when it is to tell it of an entry.
type cutAtEntry struct{ *memory.Backend }

func (b cutAtEntry) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	b.Cut()
	return b.Backend.Reenter(ctx, h, entries, seq)
}

// What a multi-lock has and what it was about to enter are given back at the same time, so
// that it returns as soon as another call.
func TestMultiReturnsAsSoonAsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.NewServer())
		a := client(t, cutAtEntry{b}, dlock.Options{})
		entered := lock(t, a.Mutex("b"))
		ctx, cancel := context.WithTimeout(entered.Context(t.Context()), time.Second)
		defer cancel()
		start := time.Now()
		_, err := a.Multi([]string{"a", "b"}).Lock(ctx)
		is(t, err, dlock.ErrUnavailable, context.DeadlineExceeded)
		short(t, "Lock", start, time.Second+60*time.Millisecond)
		b.Heal()
		unlock(t, lock(t, a.Mutex("a")))
		unlock(t, entered)
	})
}
