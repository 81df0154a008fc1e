package etcd_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

func TestLockUnlock(t *testing.T) {
	admin, c := raw(t, shared.Addr()), open(t, 10*time.Second, shared.Addr())
	for range 3 {
		lease, err := c.Mutex("a").Lock(context30(t))
		must(t, err)
		queued(t, admin, 1)
		must(t, lease.Unlock(context30(t)))
		queued(t, admin, 0)
	}
}

func TestHandOver(t *testing.T) {
	const clients, rounds = 4, 50
	var group sync.WaitGroup
	inside, last := 0, uint64(0)
	for range clients {
		m := open(t, 10*time.Second, shared.Addr()).Mutex("a")
		group.Go(func() {
			for range rounds {
				lease, err := m.Lock(context30(t))
				if err != nil {
					t.Error(err)
					return
				}
				inside++
				if inside != 1 || lease.Token() <= last {
					t.Errorf("%d inside, token %d after %d", inside, lease.Token(), last)
				}
				last = lease.Token()
				inside--
				if err := lease.Unlock(context30(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func TestTryLockLeavesNothing(t *testing.T) {
	admin := raw(t, shared.Addr())
	a, b := open(t, 10*time.Second, shared.Addr()).RWMutex("a"), open(t, 10*time.Second, shared.Addr()).RWMutex("a")
	lease, err := a.TryRLock(context30(t))
	must(t, err)
	_, err = b.TryLock(context30(t))
	is(t, err, dlock.ErrHeld)
	other, err := b.TryRLock(context30(t))
	must(t, err)
	queued(t, admin, 2)
	must(t, other.Unlock(context30(t)))
	must(t, lease.Unlock(context30(t)))
	lease, err = a.TryLock(context30(t))
	must(t, err)
	_, err = b.TryRLock(context30(t))
	is(t, err, dlock.ErrHeld)
	queued(t, admin, 1)
	must(t, lease.Unlock(context30(t)))
}

func TestCancelLeavesNothing(t *testing.T) {
	admin := raw(t, shared.Addr())
	a, b := open(t, 10*time.Second, shared.Addr()), open(t, 10*time.Second, shared.Addr())
	lease, err := a.Mutex("a").Lock(context30(t))
	must(t, err)
	ctx, cancel := context.WithCancel(context30(t))
	waiter := start(t, ctx, b.Mutex("a").Lock)
	queued(t, admin, 2)
	cancel()
	within(t, "cancelled", waiter.done)
	is(t, waiter.err, dlock.ErrHeld)
	queued(t, admin, 1)
	must(t, lease.Unlock(context30(t)))
}

// TestDowngrade lets a reader in and keeps a writer out that was queued before.
func TestDowngrade(t *testing.T) {
	admin := raw(t, shared.Addr())
	lease, err := open(t, 10*time.Second, shared.Addr()).RWMutex("a").Lock(context30(t))
	must(t, err)
	reader := start(t, context30(t), open(t, 10*time.Second, shared.Addr()).RWMutex("a").RLock)
	queued(t, admin, 2)
	writer := start(t, context30(t), open(t, 10*time.Second, shared.Addr()).RWMutex("a").Lock)
	queued(t, admin, 3)
	token := lease.Token()
	must(t, lease.Downgrade(context30(t)))
	must(t, reader.granted().Unlock(context30(t)))
	queued(t, admin, 2)
	time.Sleep(50 * time.Millisecond)
	if !writer.waiting() {
		t.Fatal("a writer got in beside a reader")
	}
	must(t, lease.Unlock(context30(t)))
	if got := writer.granted().Token(); got <= token {
		t.Fatalf("token %d came after %d", got, token)
	}
}
