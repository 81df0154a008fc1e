package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
)

// acquire takes the lock of that name on a bare backend.
func acquire(t testing.TB, b *etcd.Backend, name string, mode backend.Mode) *backend.Hold {
	t.Helper()
	h, err := b.Acquire(timed(t), backend.Request{
		Name: name, ID: backend.ID{Client: "c", Seq: 1}, Mode: mode, TTL: time.Minute, Wait: true,
	})
	must(t, err)
	return h
}

// releaseAll releases the holds, each of which must be reported once.
func releaseAll(t testing.TB, b *etcd.Backend, holds []*backend.Hold) map[*backend.Hold]error {
	t.Helper()
	var mu sync.Mutex
	said := make(map[*backend.Hold]error)
	b.ReleaseAll(timed(t), holds, func(h *backend.Hold, err error) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := said[h]; twice {
			t.Errorf("%s was reported twice", h.Name)
		}
		said[h] = err
	})
	if len(said) != len(holds) {
		t.Errorf("%d of %d holds were reported", len(said), len(holds))
	}
	return said
}

// TestReleaseOfMany counts the requests that end many holds together: one for
// each hundred and twenty, or one for the lease where nothing else is on it.
func TestReleaseOfMany(t *testing.T) {
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	b := etcd.New(raw(t, p.Addr()), &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { b.Close(context.Background()) })
	for n, most := range map[int]int64{50: 1, 300: 2} { // to revoke the lease and to end its watch

		var holds []*backend.Hold
		for i := range n {
			holds = append(holds, acquire(t, b, fmt.Sprint(i), backend.Exclusive))
		}
		sent := cost(t, p, func() {
			for h, err := range releaseAll(t, b, holds) {
				if err != nil {
					t.Errorf("%s: %v", h.Name, err)
				}
			}
		})
		if sent > most {
			t.Errorf("the end of %d holds took %d requests, want at most %d", n, sent, most)
		}
		queued(t, admin, 0)
	}
}

// TestReleaseOfManyBesideOthers ends some holds of a session: those that were lost,
// downgraded or released before are told so, and others live on.
func TestReleaseOfManyBesideOthers(t *testing.T) {
	admin := raw(t, shared.Addr())
	b := etcd.New(raw(t, shared.Addr()), &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { b.Close(context.Background()) })
	var holds []*backend.Hold
	for i := range 150 {
		holds = append(holds, acquire(t, b, fmt.Sprint(i), backend.Exclusive))
	}
	kept, before := acquire(t, b, "kept", backend.Shared), holds[0]
	must(t, b.Release(timed(t), before))
	_, err := admin.Delete(timed(t), prefix(t)+"/l/1/", clientv3.WithPrefix())
	must(t, err)
	must(t, b.Downgrade(timed(t), holds[2]))
	for h, err := range releaseAll(t, b, holds) {
		if over := h == before || h == holds[1]; over != errors.Is(err, backend.ErrLost) || !over && err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
	}
	queued(t, admin, 1)
	must(t, b.Release(timed(t), kept))
}

// TestExpire leaves a hold to the server, where it outlives its client.
func TestExpire(t *testing.T) {
	t.Parallel()
	admin := raw(t, shared.Addr())
	b := etcd.New(raw(t, shared.Addr()), &etcd.Options{Prefix: prefix(t)})
	other := open(t, time.Minute, shared.Addr())
	h := acquire(t, b, "a", backend.Exclusive)
	down := acquire(t, b, "b", backend.Exclusive)
	must(t, b.Downgrade(timed(t), down))
	gone := acquire(t, b, "c", backend.Exclusive)
	_, err := admin.Delete(timed(t), prefix(t)+"/l/c/", clientv3.WithPrefix())
	must(t, err)
	start := time.Now()
	must(t, b.Expire(timed(t), h, 3*time.Second))
	must(t, b.Expire(timed(t), down, 3*time.Second))
	is(t, b.Expire(timed(t), gone, 3*time.Second), backend.ErrLost)
	must(t, b.Close(timed(t)))
	for _, name := range []string{"a", "b"} {
		lease := locked(t, other.Mutex(name))
		if took := time.Since(start); took < 3*time.Second {
			t.Errorf("%s was free after %v", name, took)
		}
		must(t, lease.Unlock(timed(t)))
	}
}

// TestLockBehindAnOwnHoldThatExpires waits for as long as the hold was left to the
// server, and says that the lock is held.
func TestLockBehindAnOwnHoldThatExpires(t *testing.T) {
	t.Parallel()
	m := open(t, 20*time.Second, shared.Addr()).Mutex("a", dlock.WithMinHold(5*time.Second))
	must(t, locked(t, m).Unlock(timed(t)))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := m.Lock(ctx)
	is(t, err, dlock.ErrHeld)
	locked(t, m)
}
