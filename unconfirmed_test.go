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

// A marking backend counts the holds that nothing keeps any more.
type marking struct {
	shut
	collected atomic.Int64
}

func (m *marking) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := m.shut.Acquire(ctx, r)
	if err == nil {
		runtime.AddCleanup(h, func(n *atomic.Int64) { n.Add(1) }, &m.collected)
	}
	return h, err
}

// A client that could not tell the server of an Unlock, because a connection was closed, goes on: it keeps nothing of
// that lease when its TTL is over.
func TestUnconfirmedReleasesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &marking{shut: shut{Backend: memory.New(memory.NewServer())}}
		c, err := dlock.New(m, &dlock.Options{TTL: time.Second})
		is(t, err, nil)
		for range 20 {
			l := lock(t, c.Mutex("x"))
			m.is.Store(true)
			is(t, l.Unlock(t.Context()), dlock.ErrClosed)
			synctest.Wait()
			m.is.Store(false)
			time.Sleep(2 * time.Second)
		}
		for range 10 {
			runtime.GC()
			time.Sleep(time.Minute)
		}
		if n := m.collected.Load(); n < 15 {
			t.Errorf("%d of 20 holds are forgotten", n)
		}
		is(t, c.Close(t.Context()), nil)
	})
}
