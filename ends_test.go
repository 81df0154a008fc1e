package dlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// short reports if what took since start is longer than limit.
func short(t *testing.T, what string, start time.Time, limit time.Duration) {
	t.Helper()
	if took := time.Since(start); took > limit {
		t.Errorf("%s took %v, want %v at most", what, took, limit)
	}
}

// The server is dead. What has no deadline ends all the same.
func TestEndsWithADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.NewServer())
		c, err := dlock.New(b, &dlock.Options{TTL: time.Hour})
		is(t, err, nil)
		x, y := lock(t, c.Mutex("x")), lock(t, c.Mutex("y"))
		inner, err := c.Mutex("y").Lock(y.Context(context.Background()))
		is(t, err, nil)
		b.Cut()

		start := time.Now()
		is(t, x.Unlock(context.Background()), dlock.ErrUnavailable)
		short(t, "Unlock", start, backend.FirstAnswer)

		start = time.Now()
		_ = inner.Unlock(context.Background())
		short(t, "Unlock of an entry", start, backend.FirstAnswer)

		start = time.Now()
		err = c.Close(context.Background())
		short(t, "Close", start, 5*time.Second)
		is(t, err, dlock.ErrUnavailable)
		for _, name := range []string{`"x"`, `"y"`} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%v does not name %s", err, name)
			}
		}
	})
}

// What remains of the shortest time makes Close longer by that, and by no more.
func TestCloseWithARestAndADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb, b := newBySession(memory.NewServer())
		c, err := dlock.New(sb, &dlock.Options{TTL: time.Minute})
		is(t, err, nil)
		lock(t, c.Mutex("x"))
		lock(t, c.Mutex("y", dlock.WithMinHold(time.Second)))
		b.Cut()
		start := time.Now()
		is(t, c.Close(context.Background()), dlock.ErrUnavailable)
		short(t, "Close", start, 6*time.Second+200*time.Millisecond)
	})
}

func TestDoWithADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{TTL: time.Hour})
		var start time.Time
		is(t, dlock.Do(context.Background(), a.Mutex("x"), func(context.Context, *dlock.Lease) error {
			ba.Cut()
			start = time.Now()
			return nil
		}), nil)
		short(t, "Do", start, backend.FirstAnswer)
		ba.Heal()
		start = time.Now()
		unlock(t, lock(t, b.Mutex("x"))) // the janitor goes on
		short(t, "the janitor", start, 2*time.Second)
	})
}

// Who has waited here behind a call that has had no answer is told for how long there was none, and not for how long
// its own request had none.
func TestErrorTellsOfTheWholeSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		c, err := dlock.New(memory.New(s), nil)
		is(t, err, nil)
		s.Freeze()
		const calls = 5
		errs := make(chan error, calls)
		for range calls {
			go func() {
				_, err := c.Mutex("x").Lock(t.Context())
				errs <- err
			}()
			time.Sleep(300 * time.Millisecond)
		}
		for range calls {
			err := <-errs
			is(t, err, dlock.ErrUnavailable)
			if want := backend.NoAnswer(backend.FirstAnswer).Error(); !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %q, want %q in it", err, want)
			}
		}
		s.Thaw()
		is(t, c.Close(t.Context()), nil)
	})
}

// Whoever has its turn as its time ends asks nobody.
func TestNobodyIsAskedWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		b := &countingRequests{Backend: memory.New(s)}
		c, err := dlock.New(b, nil)
		is(t, err, nil)
		s.Freeze()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := c.Mutex("x").Lock(t.Context())
				is(t, err, dlock.ErrUnavailable)
			})
		}
		all.Wait()
		if n := b.requests.Load(); n != 1 {
			t.Errorf("%d requests, want that of the first", n)
		}
		s.Thaw()
		is(t, c.Close(t.Context()), nil)
	})
}

// countingRequests counts how often it is asked for a lock.
type countingRequests struct {
	*memory.Backend
	requests atomic.Int64
}

func (b *countingRequests) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	b.requests.Add(1)
	return b.Backend.Acquire(ctx, r)
}

// A call that has never had an answer fails in time, however many wait here.
func TestFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{})
		ba.Cut()
		m := a.RWMutex("x")
		type try func(context.Context) (*dlock.Lease, error)
		start, failed := time.Now(), make(chan error)
		for _, f := range []try{m.Lock, m.TryLock, m.RLock, m.TryRLock, m.Lock, m.TryLock, m.RLock, m.TryRLock} {
			go func() {
				_, err := f(context.Background())
				failed <- err
			}()
			synctest.Wait()
		}
		for range 8 {
			is(t, <-failed, dlock.ErrUnavailable)
			short(t, "a call", start, backend.FirstAnswer)
		}
		ba.Heal()
		unlock(t, lock(t, m))
	})
}

// A call that was told to wait has had its answer: it waits for as long as it may.
func TestWaitOutlivesFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{})
		other := lock(t, b.Mutex("x"))
		done := queueUp(t, a.Mutex("x"), 3, func(l *dlock.Lease) { unlock(t, l) })
		ba.Cut()
		time.Sleep(10 * backend.FirstAnswer)
		ba.Heal()
		unlock(t, other)
		done.Wait()
	})
}

// Behind a call that has had no answer nobody is told that the lock is held.
func TestBehindACallWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{})
		m := a.Mutex("x")
		ba.Cut()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		failed := make(chan error)
		go func() { _, err := m.Lock(short); failed <- err }()
		synctest.Wait()
		go func() { _, err := m.Lock(short); failed <- err }()
		go func() { _, err := m.TryLock(short); failed <- err }()
		for range 3 {
			err := <-failed
			is(t, err, dlock.ErrUnavailable)
			if errors.Is(err, dlock.ErrHeld) {
				t.Error(err)
			}
		}

		ba.Heal()
		other := lock(t, b.Mutex("x"))
		ba.Cut()
		go func() { _, err := m.Lock(t.Context()); failed <- err }()
		synctest.Wait()
		go func() { _, err := m.TryLock(t.Context()); failed <- err }()
		synctest.Wait()
		ba.Heal() // the first is told to wait: so the lock is held
		is(t, <-failed, dlock.ErrHeld)
		unlock(t, other)
		is(t, <-failed, nil)
	})
}

// A hold of the client's own that was lost is nobody's, while it is given back.
func TestOwnLostHoldIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{TTL: 2 * time.Second})
		lease := lock(t, a.Mutex("x"))
		ba.Cut()
		<-lease.Done()
		for _, f := range []func(context.Context) (*dlock.Lease, error){a.Mutex("x").TryLock, a.Mutex("x").Lock} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := f(ctx)
			cancel()
			if errors.Is(err, dlock.ErrHeld) {
				t.Error(err)
			}
		}
		ba.Heal()
		unlock(t, lock(t, a.Mutex("x")))
	})
}

// What remains of the shortest time is for the server to keep: neither Unlock nor
// Close waits, and the process may end.
func TestMinHoldOutlivesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		a, err := dlock.New(memory.New(s), &dlock.Options{TTL: time.Second})
		is(t, err, nil)
		b := client(t, memory.New(s), dlock.Options{})
		start := time.Now()
		x, y := a.Mutex("x", dlock.WithMinHold(time.Minute)), a.Mutex("y", dlock.WithMinHold(time.Minute))
		unlock(t, lock(t, x))
		lock(t, y)
		_, err = x.TryLock(t.Context())
		is(t, err, dlock.ErrHeld)
		is(t, a.Close(t.Context()), nil)
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		for _, name := range []string{"x", "y"} {
			_, err := b.Mutex(name).TryLock(t.Context())
			is(t, err, dlock.ErrHeld)
		}
		for _, name := range []string{"x", "y"} {
			unlock(t, lock(t, b.Mutex(name)))
		}
		if took := time.Since(start); took < time.Minute || took > 61*time.Second {
			t.Errorf("free after %v, want 1m", took)
		}
	})
}

// Close waits for an Unlock under way before it closes the backend, and names a lock whose
// release it cannot wait for.
func TestCloseDuringUnlock(t *testing.T) {
	for _, c := range []struct {
		name    string
		takes   time.Duration
		err     error
		message string
	}{
		{"slow", 200 * time.Millisecond, nil, ""},
		{"silent", time.Hour, dlock.ErrUnavailable, `"x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &slowReleases{Backend: memory.New(memory.NewServer()), takes: c.takes, asked: make(chan struct{})}
				a, err := dlock.New(b, nil)
				is(t, err, nil)
				x := lock(t, a.Mutex("x"))
				unlocked := make(chan error, 1)
				go func() { unlocked <- x.Unlock(context.Background()) }()
				<-b.asked
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				err = a.Close(ctx)
				short(t, "Close", start, 1250*time.Millisecond)
				if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.message) {
					t.Errorf("Close: %v, want %v", err, c.err)
				}
				if err := <-unlocked; !errors.Is(err, c.err) {
					t.Errorf("Unlock: %v, want %v", err, c.err)
				}
			})
		})
	}
}

// slowReleases answers a release after that time, unless its context ends before.
type slowReleases struct {
	*memory.Backend
	takes time.Duration
	asked chan struct{}
}

func (b *slowReleases) Release(ctx context.Context, h *backend.Hold) error {
	close(b.asked)
	if !backend.Sleep(ctx, b.takes) {
		return backend.WaitEnded(ctx, false)
	}
	return b.Backend.Release(ctx, h)
}

// While Close waits for what the server does not answer, a lock that comes to a call that
// has waited for it is given back at once.
func TestGrantDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		a, err := dlock.New(&deafTo{Backend: memory.New(s), name: "lost"}, nil)
		is(t, err, nil)
		b := client(t, memory.New(s), dlock.Options{})
		held := lock(t, b.Mutex("x"))
		waited := make(chan error, 1)
		go func() { _, err := a.Mutex("x").Lock(context.Background()); waited <- err }()
		lost := lock(t, a.Mutex("lost"))
		synctest.Wait()
		s.Evict("lost")
		<-lost.Done()
		synctest.Wait() // what is left of it is being given back
		closed := make(chan error, 1)
		go func() { closed <- a.Close(context.Background()) }()
		synctest.Wait()
		unlock(t, held)
		is(t, <-waited, dlock.ErrClosed)
		synctest.Wait()
		lease, err := b.Mutex("x").TryLock(t.Context())
		is(t, err, nil)
		if len(closed) > 0 {
			t.Error("Close has not waited")
		}
		unlock(t, lease)
		<-closed
	})
}

// deafTo does not answer a release of that name.
type deafTo struct {
	*memory.Backend
	name string
}

func (b *deafTo) Release(ctx context.Context, h *backend.Hold) error {
	if h.Name == b.name {
		<-ctx.Done()
		return backend.WaitEnded(ctx, false)
	}
	return b.Backend.Release(ctx, h)
}
