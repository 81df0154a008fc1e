package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

func TestLockUnlock(t *testing.T) {
	admin, c := raw(t, shared.Addr()), open(t, 10*time.Second, shared.Addr())
	for range 3 {
		lease, err := c.Mutex("a").Lock(timed(t))
		must(t, err)
		queued(t, admin, 1)
		must(t, lease.Unlock(timed(t)))
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
				lease, err := m.Lock(timed(t))
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
				if err := lease.Unlock(timed(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// TestManyAhead queues behind more keys than a request is told of. It gets in
// when the last of them has gone, in whatever order they go.
func TestManyAhead(t *testing.T) {
	const ahead = 150
	admin, dir := raw(t, shared.Addr()), prefix(t)+"/l/a/w/"
	foreign := func(i int) string { return fmt.Sprintf("%s%03d", dir, i) }
	for i := range ahead {
		_, err := admin.Put(timed(t), foreign(i), "")
		must(t, err)
	}
	p := proxied(t, shared.Addr())
	waiter := start(t, timed(t), openQuiet(t, p).Mutex("a").Lock)
	queued(t, admin, ahead+1)
	for i := range ahead - 1 {
		_, err := admin.Delete(timed(t), foreign(i))
		must(t, err)
	}
	const session, join, look = 4, 2, 2 // what is found ahead is watched
	eventually(t, "the nearest key is watched", func() bool { return p.Stats().Requests >= session+join+look })
	if !waiter.waiting() {
		t.Fatal("let in with a key ahead")
	}
	_, err := admin.Delete(timed(t), foreign(ahead-1))
	must(t, err)
	must(t, waiter.granted().Unlock(timed(t)))
}

func TestTryLockLeavesNothing(t *testing.T) {
	admin := raw(t, shared.Addr())
	a, b := open(t, 10*time.Second, shared.Addr()).RWMutex("a"), open(t, 10*time.Second, shared.Addr()).RWMutex("a")
	lease, err := a.TryRLock(timed(t))
	must(t, err)
	_, err = b.TryLock(timed(t))
	is(t, err, dlock.ErrHeld)
	other, err := b.TryRLock(timed(t))
	must(t, err)
	queued(t, admin, 2)
	must(t, other.Unlock(timed(t)))
	must(t, lease.Unlock(timed(t)))
	lease, err = a.TryLock(timed(t))
	must(t, err)
	_, err = b.TryRLock(timed(t))
	is(t, err, dlock.ErrHeld)
	queued(t, admin, 1)
	must(t, lease.Unlock(timed(t)))
}

func TestCancelLeavesNothing(t *testing.T) {
	admin := raw(t, shared.Addr())
	a, b := open(t, 10*time.Second, shared.Addr()), open(t, 10*time.Second, shared.Addr())
	lease, err := a.Mutex("a").Lock(timed(t))
	must(t, err)
	ctx, cancel := context.WithCancel(timed(t))
	waiter := start(t, ctx, b.Mutex("a").Lock)
	queued(t, admin, 2)
	cancel()
	within(t, "cancelled", waiter.done)
	is(t, waiter.err, dlock.ErrHeld)
	queued(t, admin, 1)
	must(t, lease.Unlock(timed(t)))
}

// TestDowngrade lets a reader in and keeps a writer out that was queued before.
func TestDowngrade(t *testing.T) {
	admin := raw(t, shared.Addr())
	lease, err := open(t, 10*time.Second, shared.Addr()).RWMutex("a").Lock(timed(t))
	must(t, err)
	reader := start(t, timed(t), open(t, 10*time.Second, shared.Addr()).RWMutex("a").RLock)
	queued(t, admin, 2)
	writer := start(t, timed(t), open(t, 10*time.Second, shared.Addr()).RWMutex("a").Lock)
	queued(t, admin, 3)
	token := lease.Token()
	must(t, lease.Downgrade(timed(t)))
	must(t, reader.granted().Unlock(timed(t)))
	queued(t, admin, 2)
	time.Sleep(50 * time.Millisecond)
	if !writer.waiting() {
		t.Fatal("a writer got in beside a reader")
	}
	must(t, lease.Unlock(timed(t)))
	if got := writer.granted().Token(); got <= token {
		t.Fatalf("token %d came after %d", got, token)
	}
}
