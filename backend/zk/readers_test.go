package zk_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// readOn has n clients take the read lock m and give it back until stop is called,
// and returns when each of them has had it.
func readOn(t *testing.T, n int) (stop func()) {
	ctx, cancel := context.WithCancel(testContext(t))
	var all, ready sync.WaitGroup
	ready.Add(n)
	for range n {
		m := connect(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr()).RWMutex("m")
		all.Go(func() {
			begun := sync.OnceFunc(ready.Done)
			defer begun()
			for ctx.Err() == nil {
				lease, err := m.RLock(context.WithoutCancel(ctx))
				if err != nil {
					t.Error(err)
					return
				}
				begun()
				pass(time.Millisecond)
				if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ready.Wait()
	return func() { cancel(); all.Wait() }
}

// TestReadersAlone has readers come and go, and no writer. A client that is 4 ms
// away reads beside them: it is never told that the lock is held, and asks no more
// than a constant number of times.
func TestReadersAlone(t *testing.T) {
	const way, rounds = 2 * time.Millisecond, 30
	stop := readOn(t, 10)
	defer stop()
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	p.Delay(faultnet.ToServer, way, 0)
	p.Delay(faultnet.ToClient, way, 0)
	tp := record(p)
	m := c.RWMutex("m")
	cycles := func(lock func(context.Context) (*dlock.Lease, error)) (requests int) {
		tp.want(t, "before", tp.codes...)
		for range rounds {
			lease, err := lock(testContext(t))
			must(t, err)
			unlock(t, lease)
		}
		return tp.all()
	}
	if n := cycles(m.RLock); n > 3*rounds+1 { // and a ping
		t.Errorf("%d times RLock and Unlock took %d requests", rounds, n)
	}
	if n := cycles(m.TryRLock); n > 4*rounds+1 {
		t.Errorf("%d times TryRLock and Unlock took %d requests", rounds, n)
	}
}
