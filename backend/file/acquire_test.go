//go:build linux

package file

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestExclusionOfClients(t *testing.T) {
	const clients, rounds = 24, 20
	dir := t.TempDir()
	var inside atomic.Int32
	var last uint64
	var all sync.WaitGroup
	for _, c := range newClients(t, dir, clients) {
		all.Go(func() {
			for range rounds {
				lease := mustLock(t, c.Mutex("lock"))
				if inside.Add(1) != 1 {
					t.Error("two inside")
				}
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				inside.Add(-1)
				mustUnlock(t, lease)
			}
		})
	}
	all.Wait()
}

func TestTryLock(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 3)
	lease, err := c[0].Mutex("lock").TryLock(t.Context())
	must(t, err)
	if _, err := c[1].Mutex("lock").TryLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock of a held lock: %v", err)
	}
	if _, err := c[1].RWMutex("lock").TryRLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryRLock of a held lock: %v", err)
	}
	mustUnlock(t, lease)

	reader := mustLock(t, c[0].RWMutex("lock").RLocker())
	shared, err := c[1].RWMutex("lock").TryRLock(t.Context())
	must(t, err)
	mustUnlock(t, shared)
	writer := lockLater(t.Context(), c[1].Mutex("lock"))
	waitForQueue(t, dir, 1)
	if _, err := c[2].RWMutex("lock").TryRLock(t.Context()); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryRLock overtook a writer: %v", err)
	}
	mustUnlock(t, reader)
	mustUnlock(t, writer.get(t))
}

func TestOneWinner(t *testing.T) {
	dir := t.TempDir()
	clients := newClients(t, dir, 32)
	for range 5 {
		var won, readers atomic.Int32
		var all sync.WaitGroup
		leases := make(chan *dlock.Lease, 2*len(clients))
		begin := make(chan struct{})
		for _, c := range clients {
			all.Go(func() {
				<-begin
				if lease, err := c.Mutex("lock").TryLock(t.Context()); err == nil {
					won.Add(1)
					leases <- lease
				}
			})
		}
		close(begin)
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d winners", won.Load())
		}
		mustUnlock(t, <-leases)
		for _, c := range clients {
			all.Go(func() {
				if lease, err := c.RWMutex("lock").TryRLock(t.Context()); err == nil {
					readers.Add(1)
					leases <- lease
				}
			})
		}
		all.Wait()
		if int(readers.Load()) != len(clients) {
			t.Fatalf("%d readers of %d got in", readers.Load(), len(clients))
		}
		close(leases)
		token := uint64(0)
		for lease := range leases {
			if token != 0 && lease.Token() != token {
				t.Errorf("tokens %d and %d in one phase of readers", token, lease.Token())
			}
			token = lease.Token()
			mustUnlock(t, lease)
		}
	}
}

func TestReadersShare(t *testing.T) {
	dir := t.TempDir()
	writer := mustLock(t, newClient(t, dir).Mutex("lock"))
	var calls []*call
	for i, c := range newClients(t, dir, 20) {
		calls = append(calls, lockLater(t.Context(), c.RWMutex("lock").RLocker()))
		waitForQueue(t, dir, i+1)
	}
	mustUnlock(t, writer)
	var leases []*dlock.Lease
	for _, call := range calls {
		leases = append(leases, call.get(t))
	}
	first := leases[0].Token()
	if first <= writer.Token() {
		t.Errorf("readers' token %d after the writer's %d", first, writer.Token())
	}
	for _, lease := range leases {
		if lease.Token() != first {
			t.Errorf("token %d in the phase of %d", lease.Token(), first)
		}
		mustUnlock(t, lease)
	}
	next := mustLock(t, newClient(t, dir).RWMutex("lock").RLocker())
	if next.Token() <= first {
		t.Errorf("token %d in the phase after %d", next.Token(), first)
	}
	mustUnlock(t, next)
}

// TestReaderStoppedAsItJoins has a reader hold the lock, and another one be stopped in the middle of
// joining it. Nobody keeps readers out: who tries is not told that the lock is held, and who
// waits gets it when the other goes on.
func TestReaderStoppedAsItJoins(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 2)
	reader := mustLock(t, c[0].RWMutex("lock").RLocker())
	d, err := openDirectory(dir)
	must(t, err)
	defer d.leave()
	stopped, err := d.open(d.fileName("lock"), os.O_RDWR)
	must(t, err)
	defer stopped.close(joinByte)
	ok, err := lockByte(stopped, backend.Exclusive, joinByte)
	if must(t, err); !ok {
		t.Fatal("the byte is taken")
	}
	if _, err := c[1].RWMutex("lock").TryRLock(t.Context()); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("TryRLock: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	third, err := d.open(d.fileName("lock"), os.O_RDWR)
	must(t, err)
	defer third.close()
	if _, err := third.tryLock(ended, backend.Request{Mode: backend.Shared}); !errors.Is(err, context.Canceled) {
		t.Errorf("a try whose context has ended: %v", err)
	}
	next := lockLater(t.Context(), c[1].RWMutex("lock").RLocker())
	waitForQueue(t, dir, 1)
	time.Sleep(2 * joinTimeout) // until it has found the other, unless the machine is busy
	unlockByte(stopped, joinByte)
	mustUnlock(t, next.get(t))
	mustUnlock(t, reader)
}
