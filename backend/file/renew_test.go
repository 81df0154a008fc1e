//go:build linux

package file

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

func TestDowngrade(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 4)
	lease := mustLock(t, c[0].Mutex("lock"))
	reader := lockLater(t.Context(), c[1].RWMutex("lock").RLocker())
	waitForQueue(t, dir, 1)
	writer := lockLater(t.Context(), c[2].Mutex("lock"))
	waitForQueue(t, dir, 2)
	late := lockLater(t.Context(), c[3].RWMutex("lock").RLocker())
	waitForQueue(t, dir, 3)
	must(t, lease.Downgrade(t.Context()))
	second := reader.get(t)
	if second.Token() != lease.Token() {
		t.Errorf("tokens %d and %d in one phase", second.Token(), lease.Token())
	}
	if !writer.waiting() || !late.waiting() {
		t.Error("downgrade let in the writer, or who came after it")
	}
	mustUnlock(t, lease)
	mustUnlock(t, second)
	mustUnlock(t, writer.get(t))
	mustUnlock(t, late.get(t))
}

func TestDowngradeLetsNoWriterIn(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 4)
	var exclusive atomic.Int32 // grows with every exclusive hold
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for _, c := range c[1:] {
		writers.Go(func() {
			for ctx.Err() == nil {
				lease, err := c.Mutex("lock").TryLock(ctx)
				if err == nil {
					exclusive.Add(1)
					mustUnlock(t, lease)
				}
			}
		})
	}
	for range 300 {
		lease := mustLock(t, c[0].Mutex("lock"))
		before := exclusive.Load()
		must(t, lease.Downgrade(context.Background()))
		if exclusive.Load() != before {
			t.Error("a writer came in between")
		}
		mustUnlock(t, lease)
	}
	stop()
	writers.Wait()
}

func TestReleaseAgain(t *testing.T) {
	b, err := New(&Options{Dir: t.TempDir()})
	must(t, err)
	defer b.Close(t.Context())
	r := backend.Request{Name: "lock", ID: backend.ID{Client: "a", Seq: 1}, Mode: backend.Exclusive, TTL: time.Second}
	first, err := b.Acquire(t.Context(), r)
	must(t, err)
	must(t, b.Release(t.Context(), first))
	r.ID.Seq = 2
	second, err := b.Acquire(t.Context(), r)
	must(t, err)
	if err := b.Release(t.Context(), first); !errors.Is(err, backend.ErrLost) {
		t.Errorf("second release: %v", err)
	}
	b.Renew(t.Context(), []*backend.Hold{first, second}, func(h *backend.Hold, err error) {
		if errors.Is(err, backend.ErrLost) != (h == first) {
			t.Errorf("renewal of %v: %v", h.ID, err)
		}
	})
	must(t, b.Release(t.Context(), second))
}
