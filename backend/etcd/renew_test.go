package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
)

// TestWanted tells a holder of another client that waits, with a renewal that would
// be sent anyway.
func TestWanted(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*dlock.RWMutex) dlock.Locker{
		"writer": func(m *dlock.RWMutex) dlock.Locker { return m },
		"reader": func(m *dlock.RWMutex) dlock.Locker { return m.RLocker() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
			c := open(t, keptTTL, p.Addr())
			lease, before := locked(t, of(c.RWMutex("a"))), p.Stats().Requests
			const renewal = 2 // a request for the lease and one for the key
			eventually(t, "the lease is renewed", func() bool { return p.Stats().Requests >= before+renewal })
			select {
			case <-lease.Wanted():
				t.Fatal("nobody waits")
			default:
			}
			waiter := start(t, timed(t), open(t, time.Minute, shared.Addr()).RWMutex("a").Lock)
			queued(t, admin, 2)
			within(t, "told", lease.Wanted())
			must(t, lease.Unlock(timed(t)))
			must(t, waiter.granted().Unlock(timed(t)))
		})
	}
}

// TestWaiterOnAnOldSession begins to wait when less is left of the lease of the session, which
// nobody has used for long, than the pause after which that looks whether somebody waits.
func TestWaiterOnAnOldSession(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Minute
	admin := raw(t, shared.Addr())
	held := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	b := etcd.New(raw(t, shared.Addr()), &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { b.Close(context.Background()) })
	request := backend.Request{Name: "b", ID: backend.ID{Client: "c", Seq: 1}, Mode: backend.Exclusive, TTL: ttl, Wait: true}
	h, err := b.Acquire(timed(t), request)
	must(t, err)
	must(t, b.Release(timed(t), h))
	lease, _ := etcd.Lease(b)
	etcd.SetLeft(b, ttl/50)
	request.Name = "a"
	waits := make(chan error, 1)
	go func() {
		_, err := b.Acquire(timed(t), request)
		waits <- err
	}()
	queued(t, admin, 2)
	var now clientv3.LeaseID
	eventually(t, "the session is renewed, or another", func() bool {
		var age time.Duration
		now, age = etcd.Lease(b)
		return now != lease || age < ttl/3
	})
	if now != lease {
		t.Error("the waiter's lease ran out though the server was there")
	}
	must(t, held.Unlock(timed(t)))
	must(t, <-waits)
}
