package dlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// A hook Closed that does not return holds up the release of no lock, also where they are
// released a few at a time.
func TestClosedHookHoldsUpNoRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		b, _ := newBySession(s)
		end := make(chan struct{})
		c, err := dlock.New(b, &dlock.Options{Hooks: dlock.Hooks{Closed: func(context.Context, dlock.ClosedEvent) { <-end }}})
		is(t, err, nil)
		const n = 100
		for i := range n {
			lock(t, c.Mutex(fmt.Sprint(i)))
		}
		closed := make(chan error)
		go func() { closed <- c.Close(context.Background()) }()
		synctest.Wait()
		other := client(t, memory.New(s), dlock.Options{})
		for i := range n {
			lease, err := other.Mutex(fmt.Sprint(i)).TryLock(t.Context())
			is(t, err, nil)
			unlock(t, lease)
		}
		is(t, <-closed, dlock.ErrUnavailable)
		close(end)
	})
}

// A logger that does not return holds up no call that asks for a lock whose TTL is short.
func TestLoggerHoldsUpNoShortTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memory.New(nil), dlock.Options{TTL: 50 * time.Millisecond, Logger: slog.New(slowHandler{})})
		start := time.Now()
		unlock(t, lock(t, c.Mutex("x")))
		unlock(t, lock(t, c.Mutex("y")))
		short(t, "Lock", start, 0)
		time.Sleep(time.Minute)
	})
}
