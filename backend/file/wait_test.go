//go:build linux

package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	holder := mustLock(t, newClient(t, dir).Mutex("lock"))
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	leaving, leave := context.WithCancel(t.Context())
	for i, c := range newClients(t, dir, 5) {
		ctx := t.Context()
		if i == 2 {
			ctx = leaving
		}
		all.Go(func() {
			lease, err := c.Mutex("lock").Lock(ctx)
			if i == 2 {
				if !errors.Is(err, dlock.ErrHeld) || !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled Lock: %v", err)
				}
				return
			}
			must(t, err)
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			mustUnlock(t, lease)
		})
		waitForQueue(t, dir, i+1)
	}
	leave()
	waitForQueue(t, dir, 4)
	mustUnlock(t, holder)
	all.Wait()
	if len(order) != 4 || order[0] != 0 || order[1] != 1 || order[2] != 3 || order[3] != 4 {
		t.Errorf("order %v", order)
	}
}

func TestFIFOThoughClockGoesBack(t *testing.T) {
	dir := t.TempDir()
	holder := mustLock(t, newClient(t, dir).Mutex("lock"))
	l, err := openLock(filepath.Join(dir, "lock.lock"), os.O_RDWR)
	must(t, err)
	defer l.file.Close()
	future := time.Now().Add(time.Hour).UnixNano()
	if ok, err := lockByte(l, backend.Exclusive, future); !ok {
		t.Fatal("no position:", err)
	}
	call := lockLater(t.Context(), newClient(t, dir).Mutex("lock"))
	waitForQueue(t, dir, 2)
	if _, length, err := findLock(l, backend.Exclusive, future+1, lastPosition); length == 0 {
		t.Error("a newcomer overtook by the clock:", err)
	}
	unlockByte(l, future)
	mustUnlock(t, holder)
	mustUnlock(t, call.get(t))
}

func TestWriterNotStarved(t *testing.T) {
	dir := t.TempDir()
	clients := newClients(t, dir, 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	inside := 0
	// The last reader stays until another comes, or cannot because it queues
	// behind the writer.
	mayLeave := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if inside == 1 && queue(t, dir) < 2 && ctx.Err() == nil {
			return false
		}
		inside--
		return true
	}
	var readers sync.WaitGroup
	for _, c := range clients[1:] {
		readers.Go(func() {
			for ctx.Err() == nil {
				lease := mustLock(t, c.RWMutex("lock").RLocker())
				mu.Lock()
				inside++
				mu.Unlock()
				eventually(t, "another reader", mayLeave)
				mustUnlock(t, lease)
			}
		})
	}
	for range 20 {
		mustUnlock(t, mustLock(t, clients[0].Mutex("lock")))
	}
	stop()
	readers.Wait()
}

func TestReaderNotStarved(t *testing.T) {
	dir := t.TempDir()
	clients := newClients(t, dir, 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	for _, c := range clients[1:] {
		writers.Go(func() {
			for ctx.Err() == nil {
				lease := mustLock(t, c.Mutex("lock"))
				eventually(t, "a full queue", func() bool { return queue(t, dir) >= 2 || ctx.Err() != nil })
				mustUnlock(t, lease)
			}
		})
	}
	for range 20 {
		mustUnlock(t, mustLock(t, clients[0].RWMutex("lock").RLocker()))
	}
	stop()
	writers.Wait()
}

func TestCancelAtGrant(t *testing.T) {
	dir := t.TempDir()
	c := newClients(t, dir, 2)
	granted := 0
	for i := range 1000 {
		lease := mustLock(t, c[0].Mutex("lock"))
		ctx, cancel := context.WithCancel(t.Context())
		call := lockLater(ctx, c[1].Mutex("lock"))
		if i%2 == 0 {
			waitForQueue(t, dir, 1)
		}
		go cancel()
		mustUnlock(t, lease)
		<-call.done
		switch {
		case call.err == nil && call.lease != nil:
			granted++
			mustUnlock(t, call.lease)
		case call.lease != nil || !errors.Is(call.err, context.Canceled):
			t.Fatalf("lease %v, error %v", call.lease, call.err)
		}
		if lease, err := c[0].Mutex("lock").TryLock(t.Context()); err != nil {
			t.Fatalf("round %d: not free afterwards: %v", i, err)
		} else {
			mustUnlock(t, lease)
		}
	}
	t.Logf("%d of 1000 granted", granted)
}
