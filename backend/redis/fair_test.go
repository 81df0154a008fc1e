package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestFairWithoutMessages has one client pass a lock among its goroutines while another
// waits that no message can announce: polling, and on a cluster a holder that has never
// waited for the lock. What counts is how often the lock goes past who waits.
func TestFairWithoutMessages(t *testing.T) {
	t.Run("polling", func(t *testing.T) {
		t.Parallel()
		url := "redis://" + shared.Addr() + "?dlock.wake=poll"
		admin := plainClient(t, shared)
		testFair(t, url, func() bool { return waiting(t, admin) > 0 })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c, admin := startCluster(t, server.Redis{})
		testFair(t, clusterURL(c), func() bool {
			return admin.ZCard(context.Background(), mainKey(t.Name())+":q").Val() > 0
		})
	})
}

func testFair(t *testing.T, url string, queued func() bool) {
	const passes = 100 // much less than a third of the lease allows
	ctx := within(t)
	o := &dlock.Options{TTL: limit}
	busy, other := openURL(t, url, o), openURL(t, url, o)
	working, stop := context.WithCancel(ctx)
	var turns atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for working.Err() == nil {
				l, err := busy.Mutex(t.Name()).Lock(working)
				if err != nil {
					continue
				}
				turns.Add(1)
				time.Sleep(time.Millisecond)
				_ = l.Unlock(context.Background())
			}
		})
	}
	defer all.Wait()
	defer stop()
	eventually(t, "it is passed on", func() bool { return turns.Load() > 20 })
	got := make(chan *dlock.Lease, 1)
	go func() { got <- must[*dlock.Lease](t)(other.Mutex(t.Name()).Lock(ctx)) }()
	eventually(t, "the other one waits", func() bool { return queued() || len(got) > 0 })
	before := turns.Load()
	l := <-got
	if n := turns.Load() - before; n > passes {
		t.Errorf("the lock went past the other client %d times", n)
	}
	must[any](t)(nil, l.Unlock(ctx))
}

// TestPollingScales adds up how often the waiters of one lock ask that nobody can tell.
func TestPollingScales(t *testing.T) {
	const waiters = 200
	b := &Backend{poll: DefaultPoll}
	perSecond := 0.0
	for position := range waiters {
		c := &acquisition{Request: &backend.Request{TTL: limit}, b: b, polls: true}
		pause := c.pollInterval(answer{values: []any{"QUEUED", int64(0), int64(0), int64(position), int64(0)}})
		if pause > unconfirmed/2 {
			t.Errorf("position %d asks every %v: a grant could run out", position, pause)
		}
		perSecond += 1 / pause.Seconds()
	}
	if perSecond > 300 {
		t.Errorf("%d waiters ask %.0f times a second", waiters, perSecond)
	}
}
