package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A spy is a context that looks around whenever one made from it is ended: to end a
// context asks its parent.
type spy struct {
	context.Context
	look atomic.Pointer[func()]
}

func (s *spy) Done() <-chan struct{} {
	if look := s.look.Load(); look != nil {
		(*look)()
	}
	return s.Context.Done()
}

func newSpy(t *testing.T) *spy {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &spy{Context: ctx}
}

// allOver reports on leases that are not over, with everything that they answer.
func allOver(t *testing.T, leases ...*dlock.Lease) {
	t.Helper()
	for i, l := range leases {
		if err := l.Err(); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("lease %d: %v", i, err)
		}
		select {
		case <-l.Done():
		default:
			t.Errorf("lease %d: Done is open", i)
		}
		if ctx := l.Context(t.Context()); ctx.Err() == nil {
			t.Errorf("lease %d: a context that lives", i)
		}
	}
}

// When the first is told that a hold is over every lease on it says so.
func TestLossIsOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{TTL: time.Second})
		m := a.Mutex("x")
		outer := lock(t, m)
		outerCtx := outer.Context(t.Context())
		middle, err := m.Lock(outerCtx)
		if err != nil {
			t.Fatal(err)
		}
		middleCtx := middle.Context(t.Context())
		inner, err := m.Lock(middleCtx)
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		look := func() {
			told++
			allOver(t, outer, middle, inner)
			for _, ctx := range []context.Context{outerCtx, middleCtx} {
				if _, held := m.Held(ctx); held {
					t.Error("Held says so")
				}
				if lease, err := m.TryLock(ctx); err == nil {
					t.Error("the lost lock is entered again", lease.Err())
				}
			}
		}
		for _, l := range []*dlock.Lease{outer, middle, inner} {
			s := newSpy(t)
			l.Context(s)
			s.look.Store(&look)
		}
		ba.Cut()
		<-inner.Done()
		synctest.Wait()
		if told < 3 {
			t.Error("told", told, "times")
		}
		ba.Heal()
	})
}

// The locks of a multi-lock are over together, too.
func TestMultiLossIsOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{TTL: time.Second})
		lease := lock(t, a.Multi([]string{"x", "y", "z"}))
		ctx := lease.Context(context.WithoutCancel(t.Context()))
		leases := []*dlock.Lease{lease}
		for _, name := range []string{"x", "y", "z"} {
			part, ok := a.Mutex(name).Held(ctx)
			if !ok {
				t.Fatal(name, "is not held")
			}
			leases = append(leases, part)
		}
		told := 0
		look := func() {
			told++
			allOver(t, leases...)
		}
		for _, l := range leases {
			s := newSpy(t)
			l.Context(s)
			s.look.Store(&look)
		}
		s.Evict("y")
		synctest.Wait()
		if told < len(leases) {
			t.Error("told", told, "times")
		}
		for _, name := range []string{"x", "y", "z"} { // and the others are given back
			unlock(t, lock(t, b.Mutex(name)))
		}
		is(t, lease.Unlock(t.Context()), dlock.ErrLost)
	})
}

// A lease has ended, and a context of it is about to: nobody takes the lock anew with
// that.
func TestLockUnderALeaseThatHasJustEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, _ := pair(t, dlock.Options{TTL: time.Second})
		m := a.Mutex("x")
		lease, s := lock(t, m), newSpy(t)
		lease.Context(s)
		under := lease.Context(t.Context())
		asked := false
		look := func() {
			if !asked {
				asked = true
				_, err := m.TryLock(under)
				is(t, err, dlock.ErrUnlocked)
			}
		}
		s.look.Store(&look)
		unlock(t, lease)
		if !asked {
			t.Error("nobody has looked")
		}
	})
}

// Many contexts of one lease do not hold up the end of another.
func TestEndOfManyContextsBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{TTL: time.Second})
		m := a.Mutex("x")
		outer := lock(t, m)
		inner, err := m.Lock(outer.Context(t.Context()))
		is(t, err, nil)
		s := newSpy(t)
		for range 2000 {
			inner.Context(s)
		}
		work := outer.Context(t.Context())
		ended := make(chan struct{})
		look := func() { <-ended }
		s.look.Store(&look)
		go func() { <-work.Done(); close(ended) }()
		ba.Cut()
		<-ended
		ba.Heal()
	})
}

// partlySilent does not answer the release of some names.
type partlySilent struct{ bySession }

func (p partlySilent) Release(ctx context.Context, h *backend.Hold) error {
	if strings.HasPrefix(h.Name, "silent") {
		<-ctx.Done()
		return backend.WaitEnded(ctx, false)
	}
	return p.bySession.Release(ctx, h)
}

// Locks that cannot be given back do not hold up the return of others, however many
// and however long their leases are.
func TestReleasesWithoutAnswerDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		sb, _ := newBySession(s)
		c, err := dlock.New(partlySilent{sb}, &dlock.Options{TTL: time.Hour})
		is(t, err, nil)
		lease := lock(t, c.Mutex("x"))
		for i := range 50 {
			is(t, lock(t, c.Mutex(fmt.Sprint("silent", i))).Unlock(t.Context()), dlock.ErrUnavailable)
		}
		s.Evict("x")
		<-lease.Done()
		time.Sleep(2 * backend.FirstAnswer)
		start := time.Now()
		unlock(t, lock(t, c.Mutex("x")))
		short(t, "Lock after the loss", start, 0)

		err = c.Close(context.Background())
		is(t, err, dlock.ErrUnavailable)
		if !strings.Contains(err.Error(), `"silent0"`) {
			t.Errorf("%v does not name what is not free", err)
		}
	})
}
