package dlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// slow carries out a downgrade, and answers when it is told to.
type slow struct {
	*memory.Backend
	calls   atomic.Int32
	answer  chan error
	refuses bool // it cannot downgrade
}

func (b *slow) Downgrade(ctx context.Context, h *backend.Hold) error {
	b.calls.Add(1)
	if b.refuses {
		return backend.ErrUnsupported
	}
	if err := b.Backend.Downgrade(ctx, h); err != nil {
		return err
	}
	return <-b.answer
}

// Transfer is that of a backend which does not know of downgrades.
func (b *slow) Transfer(h *backend.Hold) (uint64, bool) { return h.Token + 1, true }

// slowly locks x on a slow backend.
func slowly(t *testing.T) (s *memory.Server, b *slow, c *dlock.Client, lease *dlock.Lease) {
	s = memory.NewServer()
	b = &slow{Backend: memory.New(s), answer: make(chan error)}
	c = client(t, b, dlock.Options{TTL: 10 * time.Second})
	return s, b, c, lock(t, c.RWMutex("x"))
}

func TestUnlockWaitsForDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, c, lease := slowly(t)
		downgraded, unlocked := make(chan error, 1), make(chan error, 1)
		go func() { downgraded <- lease.Downgrade(t.Context()) }()
		synctest.Wait()
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		synctest.Wait()
		if len(unlocked) > 0 {
			t.Error("the release has overtaken the downgrade")
		}
		b.answer <- nil
		is(t, <-unlocked, nil)
		is(t, <-downgraded, dlock.ErrUnlocked)
		unlock(t, lock(t, c.RWMutex("x")))
	})
}

func TestLossDuringDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, c, lease := slowly(t)
		downgraded := make(chan error, 1)
		go func() { downgraded <- lease.Downgrade(t.Context()) }()
		synctest.Wait()
		s.Evict("x")
		<-lease.Done()
		b.answer <- nil
		is(t, <-downgraded, dlock.ErrLost)
		unlock(t, lock(t, c.RWMutex("x")))
	})
}

// The lease is over in time, although its downgrade has not been answered.
func TestDeadlineDuringDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, c, lease := slowly(t)
		start, downgraded := time.Now(), make(chan error, 1)
		go func() { downgraded <- lease.Downgrade(t.Context()) }()
		<-lease.Done()
		if lasted := time.Since(start); lasted >= 10*time.Second {
			t.Errorf("believed in for %v", lasted)
		}
		b.answer <- nil
		is(t, <-downgraded, dlock.ErrLost)
		unlock(t, lock(t, c.RWMutex("x")))
	})
}

// A hold is renewed as before when its downgrade was answered, whatever the answer.
func TestRenewalAfterDowngrade(t *testing.T) {
	for _, answer := range []error{nil, dlock.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			_, b, _, lease := slowly(t)
			downgraded := make(chan error, 1)
			go func() { downgraded <- lease.Downgrade(t.Context()) }()
			time.Sleep(5 * time.Second) // a renewal was due
			b.answer <- answer
			is(t, <-downgraded, answer)
			time.Sleep(time.Minute)
			unlock(t, lease)
		})
	}
}

func TestDowngradeTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, c, lease := slowly(t)
		downgraded := make(chan error, 2)
		for range 2 {
			go func() { downgraded <- lease.Downgrade(t.Context()) }()
		}
		synctest.Wait()
		b.answer <- nil
		is(t, <-downgraded, nil)
		is(t, <-downgraded, nil)
		if n := b.calls.Load(); n != 1 {
			t.Errorf("the server was asked %d times", n)
		}
		unlock(t, lease)
		unlock(t, lock(t, c.RWMutex("x")))
	})
}

// The answer to a downgrade was lost. The server may have a reader's hold, and
// nobody here gets it to write under.
func TestDowngradeInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, c, lease := slowly(t)
		other := client(t, memory.New(s), dlock.Options{}).RWMutex("x")
		downgraded, written := make(chan error, 1), make(chan *dlock.Lease, 1)
		go func() { written <- lock(t, c.RWMutex("x")) }()
		synctest.Wait()
		go func() { downgraded <- lease.Downgrade(t.Context()) }()
		b.answer <- dlock.ErrUnavailable
		is(t, <-downgraded, dlock.ErrUnavailable)
		_, err := c.RWMutex("x").Lock(lease.Context(t.Context()))
		is(t, err, dlock.ErrUpgrade)

		unlock(t, lease)
		writer := <-written
		_, err = other.TryRLock(t.Context())
		is(t, err, dlock.ErrHeld)
		unlock(t, writer)
	})
}

// A downgrade that ends before it has asked the server leaves the lease as it was.
func TestDowngradeThatNeverAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{TTL: 30 * time.Second})
		m := a.RWMutex("x")
		lease := lock(t, m)
		ba.Cut()
		time.Sleep(11 * time.Second) // a renewal is under way
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		is(t, lease.Downgrade(ctx), dlock.ErrUnavailable)
		ba.Heal()
		inner, err := m.Lock(lease.Context(t.Context()))
		is(t, err, nil)
		unlock(t, inner)
		unlock(t, lease)
	})
}

// A backend that cannot downgrade has done nothing: the lease is as it was.
func TestDowngradeThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{Backend: memory.New(memory.NewServer()), refuses: true}
		m := client(t, b, dlock.Options{}).RWMutex("x")
		lease := lock(t, m)
		is(t, lease.Downgrade(t.Context()), dlock.ErrUnsupported)
		inner, err := m.Lock(lease.Context(t.Context()))
		is(t, err, nil)
		unlock(t, inner)
		unlock(t, lease)
	})
}

// What is wrong with a call needs no server that answers: an exclusive entry is open.
func TestDowngradeUnderAnOpenEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		c := client(t, memory.New(s), dlock.Options{TTL: 30 * time.Second})
		lease := lock(t, c.RWMutex("x"))
		nested, err := c.RWMutex("x").Lock(lease.Context(t.Context()))
		is(t, err, nil)
		s.Freeze()
		time.Sleep(11 * time.Second) // a renewal is under way
		start := time.Now()
		is(t, lease.Downgrade(t.Context()), dlock.ErrReentry)
		if took := time.Since(start); took > 0 {
			t.Errorf("said after %v", took)
		}
		s.Thaw()
		unlock(t, nested)
		unlock(t, lease)
	})
}
