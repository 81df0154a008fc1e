package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
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
