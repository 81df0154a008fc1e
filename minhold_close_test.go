package dlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A client is closed after an Unlock has ended the lease, and before the Unlock has come
// to the release. The lock is kept for its minimum hold all the same, by a process whose
// server cannot.
func TestCloseBetweenUnlockAndMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.NewServer())
		c, err := New(struct {
			backend.Backend
			backend.Renewer
		}{b, b}, nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		lease, err := c.Mutex("x", WithMinHold(time.Second)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := lease.of.(*entry)
		endUnlocked(e)
		if last, err := e.leaveHold(t.Context()); !last || err != nil {
			t.Fatal(last, err)
		}
		closed := make(chan error, 1)
		go func() { closed <- c.Close(context.Background()) }()
		synctest.Wait()
		if err := e.hold.releaseAfterMinHold(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if held := time.Since(start); held != time.Second {
			t.Errorf("held for %v", held)
		}
	})
}
