package dlock_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// What handles a signal and a deferred call both close a client: the second of them has nothing to do, also
// while the first waits for a server that is silent.
func TestCloseAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.NewServer())
		c, err := dlock.New(b, &dlock.Options{TTL: 3 * time.Second})
		is(t, err, nil)
		lock(t, c.Mutex("x"))
		b.Cut()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		first := make(chan error)
		go func() { first <- c.Close(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		is(t, c.Close(t.Context()), nil)
		is(t, c.Close(over), nil)
		if took := time.Since(start); took > 0 {
			t.Errorf("Close again took %v", took)
		}
		is(t, <-first, dlock.ErrUnavailable)
		is(t, c.Close(t.Context()), nil)
	})
}

// A shut backend is one whose connections the program has closed, once it is.
type shut struct {
	*memory.Backend
	is atomic.Bool
}

func (s *shut) Release(ctx context.Context, h *backend.Hold) error {
	if s.is.Load() {
		return backend.ErrClosed
	}
	return s.Backend.Release(ctx, h)
}

// Close names a lock that the server keeps because the connections were closed first, for as long as it keeps
// it; and nothing keeps the client until then, which may be a day.
func TestCloseAfterItsConnections(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  error
	}{
		{0, dlock.ErrUnavailable},
		{24*time.Hour + time.Second, nil},
	} {
		t.Run(c.after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var collected atomic.Bool
				closeShut(t, c.after, c.want, &collected)
				for range 10 {
					runtime.GC()
					time.Sleep(time.Minute)
				}
				if !collected.Load() {
					t.Error("the client is kept")
				}
			})
		})
	}
}

// closeShut closes a client that long after it could not tell the server of an Unlock.
func closeShut(t *testing.T, after time.Duration, want error, collected *atomic.Bool) {
	s := &shut{Backend: memory.New(memory.NewServer())}
	c, err := dlock.New(s, &dlock.Options{TTL: 24 * time.Hour})
	is(t, err, nil)
	runtime.AddCleanup(c, func(collected *atomic.Bool) { collected.Store(true) }, collected)
	l := lock(t, c.Mutex("x"))
	s.is.Store(true)
	is(t, l.Unlock(t.Context()), dlock.ErrClosed)
	time.Sleep(after)
	is(t, c.Close(t.Context()), want)
}
