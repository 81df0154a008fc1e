package pg

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestLockUnlock(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	q := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	a := lock(t, p.Mutex(nameOf(t)))
	if _, err := q.Mutex(nameOf(t)).TryLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("try on a held lock: %v", err)
	}
	waiting := locking(t, q.Mutex(nameOf(t)))
	eventually(t, "queued", func() bool { return inLocks(t, admin(t, shared.Addr()), p.backend, nameOf(t), false) == 1 })
	unlock(t, a)
	b := receive(t, "the lock", waiting)
	if b.Token() <= a.Token() {
		t.Errorf("token %d after %d", b.Token(), a.Token())
	}
	unlock(t, b)
}

func TestManyGoroutines(t *testing.T) {
	peers := []*peer{newPeer(t, shared.Addr(), Options{}, 10*time.Second), newPeer(t, shared.Addr(), Options{}, 10*time.Second)}
	var n int
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 50 {
				l := lock(t, peers[i%2].Mutex(nameOf(t)))
				n++
				unlock(t, l)
			}
		})
	}
	all.Wait()
	if n != 800 {
		t.Errorf("%d of 800", n)
	}
}

func TestReaders(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	q := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	one, err := p.RWMutex(nameOf(t)).RLock(testContext(t))
	must(t, err)
	two, err := p.RWMutex(nameOf(t)).RLock(testContext(t))
	must(t, err)
	three, err := q.RWMutex(nameOf(t)).RLock(testContext(t))
	must(t, err)
	writer := locking(t, q.RWMutex(nameOf(t)))
	other := locking(t, newPeer(t, shared.Addr(), Options{}, 10*time.Second).RWMutex(nameOf(t)))
	eventually(t, "writer queued", func() bool { return inLocks(t, admin(t, shared.Addr()), p.backend, nameOf(t), false) >= 1 })
	if _, err := p.RWMutex(nameOf(t)).TryRLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("a reader passed a waiting writer: %v", err)
	}
	unlock(t, one)
	unlock(t, two)
	unlock(t, three)
	unlock(t, receive(t, "one writer", other))
	unlock(t, receive(t, "other writer", writer))
}

// TestOneOfTwoReadersLeaves has two holds of one client share what the server
// knows of. It is given back with the second.
func TestOneOfTwoReadersLeaves(t *testing.T) {
	p := peers(t, shared.Addr(), 2)
	one, two := holdOf(t, p[0].backend, backend.Shared), holdOf(t, p[0].backend, backend.Shared)
	writer := p[1].Mutex(nameOf(t))
	must(t, p[0].backend.Release(testContext(t), one))
	if _, err := writer.TryLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("a writer beside a reader: %v", err)
	}
	must(t, p[0].backend.Release(testContext(t), two))
	unlock(t, lock(t, writer))
}

// TestReadersOfTwoLeasesWait has two readers of one client wait, with TTLs that have not one lease.
// The server has said that the lock is held: each is told so, and is not ended for want of an answer.
func TestReadersOfTwoLeasesWait(t *testing.T) {
	t.Parallel()
	held := lock(t, newPeer(t, shared.Addr(), Options{}, time.Minute).Mutex(nameOf(t)))
	queued := make(chan string, 2)
	p := newPeerOf(t, shared.Addr(), Options{}, dlock.Options{Hooks: dlock.Hooks{Waiting: func(_ context.Context, e dlock.WaitingEvent) { queued <- e.Name }}})
	var waits []<-chan *dlock.Lease
	for _, ttl := range []time.Duration{10 * time.Second, time.Minute} {
		waits = append(waits, locking(t, p.RWMutex(nameOf(t), dlock.WithTTL(ttl)).RLocker()))
		receive(t, "the wait", queued)
	}
	unlock(t, held)
	for _, w := range waits {
		unlock(t, receive(t, "the lock", w))
	}
}

// TestFreeLockThatWasWanted takes a lock that was found held before, and so is
// waited for at once: there is no wait to tell of.
func TestFreeLockThatWasWanted(t *testing.T) {
	var told atomic.Int64
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	q := newPeerOf(t, shared.Addr(), Options{}, dlock.Options{TTL: 10 * time.Second, Hooks: dlock.Hooks{Waiting: func(context.Context, dlock.WaitingEvent) { told.Add(1) }}})
	held := lock(t, p.Mutex(nameOf(t)))
	next := queue(t, shared.Addr(), q, nameOf(t))
	unlock(t, held)
	unlock(t, receive(t, "the lock", next))
	before := told.Load()
	for range 50 {
		works(t, q.Mutex(nameOf(t)))
	}
	if n := told.Load() - before; n >= 50 { // an answer may take long
		t.Errorf("%d of 50 locks that nobody had were waited for", n)
	}
}

// A request whose hold is not renewed has the attempt that it joins ask for a fresh proof.
func TestFixedRequestJoins(t *testing.T) {
	a := new(attempt)
	for _, fixed := range []bool{false, true, false} {
		a.join(&backend.Request{Mode: backend.Shared, Fixed: fixed})
	}
	if !a.fixed {
		t.Error("the attempt takes an old proof for a hold that is not renewed")
	}
}
