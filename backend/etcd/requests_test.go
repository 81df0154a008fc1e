package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// cost returns how many requests do sends through p.
func cost(t testing.TB, p *faultnet.Proxy, do func()) int64 {
	t.Helper()
	before := p.Stats().Requests
	do()
	return p.Stats().Requests - before
}

func costs(t testing.TB, p *faultnet.Proxy, want int64, what string, do func()) {
	t.Helper()
	if got := cost(t, p, do); got != want {
		t.Errorf("%s: %d requests, want %d", what, got, want)
	}
}

// openQuiet opens a client, which makes a session: lease, key and watch, and asks
// for the server's version.
func openQuiet(t testing.TB, p *faultnet.Proxy) *dlock.Client {
	c := open(t, 10*time.Minute, p.Addr())
	complete(t, p)
	return c
}

// complete waits until a client has sent all that it does when it is opened.
func complete(t testing.TB, p *faultnet.Proxy) {
	t.Helper()
	eventually(t, "the session is complete", func() bool { return p.Stats().Requests == 4 && p.Stats().Owed == 0 })
}

func TestRoundTrips(t *testing.T) {
	p := proxied(t, shared.Addr())
	m, other := openQuiet(t, p).RWMutex("a"), open(t, time.Minute, shared.Addr()).RWMutex("a")
	var lease *dlock.Lease
	costs(t, p, 1, "free Lock", func() { lease = locked(t, m) })
	costs(t, p, 1, "Downgrade", func() { must(t, lease.Downgrade(timed(t))) })
	costs(t, p, 1, "Unlock", func() { must(t, lease.Unlock(timed(t))) })
	costs(t, p, 1, "free TryLock", func() {
		var err error
		lease, err = m.TryLock(timed(t))
		must(t, err)
	})
	must(t, lease.Unlock(timed(t)))

	lease = locked(t, other)
	costs(t, p, 1, "busy TryLock", func() {
		_, err := m.TryLock(timed(t))
		is(t, err, dlock.ErrHeld)
	})
	costs(t, p, 1, "busy TryRLock", func() {
		_, err := m.TryRLock(timed(t))
		is(t, err, dlock.ErrHeld)
	})
	must(t, lease.Unlock(timed(t)))

	reader := locked(t, other.RLocker())
	costs(t, p, 1, "RLock among readers", func() { lease = locked(t, m.RLocker()) })
	must(t, lease.Unlock(timed(t)))
	must(t, reader.Unlock(timed(t)))
}

// TestRoundTripsOfTails counts what a queue with tails costs: a request more for who does not
// expect any, and nothing for who waits and has found some.
func TestRoundTripsOfTails(t *testing.T) {
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	m := openQuiet(t, p).Mutex("a")
	for i, take := range []func(context.Context) (*dlock.Lease, error){m.Lock, m.TryLock} {
		for _, want := range [][]int64{{2, 1}, {2, 2}}[i] {
			for _, tail := range []string{"w", "r"} {
				_, err := admin.Put(timed(t), prefix(t)+"/t/a/"+tail, "")
				must(t, err)
			}
			var lease *dlock.Lease
			costs(t, p, want, "to lock", func() {
				var err error
				lease, err = take(timed(t))
				must(t, err)
			})
			costs(t, p, 1, "Unlock", func() { must(t, lease.Unlock(timed(t))) })
		}
		costs(t, p, 2, "a cycle without tails", func() { must(t, locked(t, m).Unlock(timed(t))) })
	}
}

// TestRoundTripsOfWaiting counts what a waiter sends: to join and to watch;
// nothing while it waits, and nothing when a writer hands over. Behind one of the two
// keys that the other client uses by turns, which it watches already, it only joins. No
// other test runs beside it: a write between the answer and the watch takes one more.
func TestRoundTripsOfWaiting(t *testing.T) {
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	other, m := open(t, time.Minute, shared.Addr()).Mutex("a"), openQuiet(t, p).Mutex("a")
	used := time.Now()
	for _, toQueue := range []int64{2, 2, 1, 1, 1} {
		settle(t, p)
		lease, before := locked(t, other), p.Stats().Requests
		waiter := start(t, timed(t), m.Lock)
		queued(t, admin, 2)
		settle(t, p)
		sent, slow := p.Stats().Requests-before, time.Since(used) > 4*time.Second
		if sent != toQueue && !(slow && sent == 2) { // a watch that is not used for five seconds ends
			t.Errorf("%d requests to wait, want %d", sent, toQueue)
		}
		costs(t, p, 0, "waiting", func() { time.Sleep(200 * time.Millisecond) })
		costs(t, p, 0, "hand-over", func() {
			must(t, lease.Unlock(timed(t)))
			waiter.granted()
		})
		if n := cost(t, p, func() { must(t, waiter.lease.Unlock(timed(t))) }); n > 2 { // with a first renewal
			t.Errorf("Unlock: %d requests", n)
		}
		used = time.Now()
	}
}

// TestHandOverByAReader takes a look: a reader's release says nothing about the
// other readers, whatever the order in which they came.
func TestHandOverByAReader(t *testing.T) {
	admin := raw(t, shared.Addr())
	var clients []*dlock.RWMutex
	for range 3 {
		clients = append(clients, open(t, time.Minute, shared.Addr()).RWMutex("a"))
	}
	for _, firstOut := range []int{0, 1} {
		readers := []*dlock.Lease{locked(t, clients[0].RLocker()), locked(t, clients[1].RLocker())}
		writer := start(t, timed(t), clients[2].Lock)
		queued(t, admin, 3)
		must(t, readers[firstOut].Unlock(timed(t)))
		queued(t, admin, 2)
		time.Sleep(100 * time.Millisecond) // for an event that must do nothing
		if !writer.waiting() {
			t.Fatal("a writer got in beside a reader")
		}
		must(t, readers[1-firstOut].Unlock(timed(t)))
		must(t, writer.granted().Unlock(timed(t)))
		queued(t, admin, 0)
	}
}

// TestMarkedKeyIsPassedOver leaves a marked key behind, since the waiter that
// would delete it has gone: the lock is free, to try and to wait for, and the key
// goes with the next use of the lock.
func TestMarkedKeyIsPassedOver(t *testing.T) {
	admin := raw(t, shared.Addr())
	first, other := open(t, time.Minute, shared.Addr()).RWMutex("a"), open(t, time.Minute, shared.Addr()).RWMutex("a")
	for _, take := range []func(context.Context) (*dlock.Lease, error){other.TryLock, other.Lock, other.TryRLock, other.RLock} {
		vanishing := open(t, time.Minute, shared.Addr())
		lease := locked(t, first)
		waiter := start(t, timed(t), vanishing.Mutex("a").Lock)
		queued(t, admin, 2)
		must(t, lease.Unlock(timed(t)))
		waiter.granted()
		revokeHolder(t, admin)
		queued(t, admin, 1)
		lease, err := take(timed(t))
		must(t, err)
		if _, err := first.TryLock(timed(t)); err == nil {
			t.Fatal("two clients have the lock")
		}
		must(t, lease.Unlock(timed(t)))
	}
	must(t, locked(t, first).Unlock(timed(t)))
	queued(t, admin, 0)
}

// TestWatchersEnd watches nothing for long that nobody waits for: a key is
// deleted once more and then no watcher is left but that of the sessions' keys.
func TestWatchersEnd(t *testing.T) {
	t.Parallel()
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	other, m := open(t, 10*time.Minute, shared.Addr()).Mutex("a"), openQuiet(t, p).Mutex("a")
	lease := locked(t, other)
	waiter := start(t, timed(t), m.Lock)
	queued(t, admin, 2)
	settle(t, p) // the watch is made
	must(t, lease.Unlock(timed(t)))
	must(t, waiter.granted().Unlock(timed(t)))
	settle(t, p)
	before := p.Stats().Requests
	eventually(t, "the watch is ended", func() bool {
		must(t, locked(t, other).Unlock(timed(t))) // by turns with two keys
		return p.Stats().Requests > before
	})
}

// TestOneKeepAlive renews many holds, and a session that only waits, with one
// request per period each.
func TestOneKeepAlive(t *testing.T) {
	t.Parallel()
	const n, ttl = 100, keptTTL
	holder, waiter := proxied(t, shared.Addr()), proxied(t, shared.Addr())
	a, b := open(t, ttl, holder.Addr()), open(t, ttl, waiter.Addr())
	var leases []*dlock.Lease
	for i := range n {
		leases = append(leases, locked(t, a.Mutex(fmt.Sprint(i))))
	}
	call := start(t, timed(t), b.Mutex("0").Lock)
	queued(t, raw(t, shared.Addr()), n+1)
	from, of, ow := time.Now(), holder.Stats().Requests, waiter.Stats().Requests
	time.Sleep(ttl)
	// A lease may be renewed early for the sake of another hold, and a look at the keys
	// goes with it: at all of them, or at those of a part of the holds.
	most := 2*int64(time.Since(from)/(ttl/6)) + 4
	if got := holder.Stats().Requests - of; got == 0 || got > most {
		t.Errorf("%d holds sent %d requests in %v", n, got, time.Since(from))
	}
	if got := waiter.Stats().Requests - ow; got == 0 || got > most {
		t.Errorf("a waiter sent %d requests in %v", got, time.Since(from))
	}
	for _, l := range leases {
		must(t, l.Unlock(timed(t)))
	}
	must(t, call.granted().Unlock(timed(t)))
}

// TestFewLeases holds four times as many locks as a lease may have keys.
func TestFewLeases(t *testing.T) {
	const n, leases = 4000, 4
	s := server.Start(t, kind())
	admin, c := raw(t, s.Addr()), open(t, time.Minute, s.Addr())
	ctx, cancel := context.WithTimeout(context.Background(), 10*limit)
	defer cancel()
	var locking sync.WaitGroup
	for worker := range 100 {
		locking.Go(func() {
			for i := worker; i < n; i += 100 {
				if _, err := c.Mutex(fmt.Sprint(i)).Lock(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	locking.Wait()
	held, err := admin.Get(ctx, prefix(t)+"/l/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	all, err := admin.Leases(ctx)
	must(t, err)
	if held.Count != n || len(all.Leases) != leases {
		t.Errorf("%d locks are held on %d leases, want %d on %d", held.Count, len(all.Leases), n, leases)
	}
}

// revokeHolder ends the lease of the key that is not released.
func revokeHolder(t *testing.T, admin *clientv3.Client) {
	t.Helper()
	reply, err := admin.Get(timed(t), prefix(t)+"/l/", clientv3.WithPrefix())
	must(t, err)
	for _, kv := range reply.Kvs {
		if string(kv.Value) != "-" {
			_, err := admin.Revoke(timed(t), clientv3.LeaseID(kv.Lease))
			must(t, err)
		}
	}
}
