package redis

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/server"
)

// TestAbandonedCommandsStay stops a server while commands queue behind one
// under way. Their callers go, so they are not sent when it is back.
func TestAbandonedCommandsStay(t *testing.T) {
	s := server.Start(t, server.Redis{})
	w := newWire(plainClient(t, s), 0)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	incr := []any{"incr", "key"}
	must[any](t)(w.do(ctx, limit, incr, ordinary))
	eventually(t, "nothing is under way", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.busy
	})
	must[any](t)(nil, s.Pause())
	first := make(chan error, 1)
	go func() { _, err := w.do(context.Background(), limit, incr, ordinary); first <- err }()
	eventually(t, "one is under way", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.started = time.Now().Add(limit) // it does not count as stalled
		return w.busy && len(w.queue) == 0
	})
	var all sync.WaitGroup
	for range 5 {
		p := w.post(limit, incr, ordinary)
		all.Go(func() {
			if _, err := p.await(ctx, time.Millisecond); !errors.Is(err, errNoReply) {
				t.Errorf("a stopped server: %v", err)
			}
		})
	}
	all.Wait()
	must[any](t)(nil, s.Resume())
	must[any](t)(nil, <-first)
	if n := must[any](t)(w.do(ctx, limit, incr, ordinary)); n != int64(3) {
		t.Errorf("executed %v times, want 3", n)
	}
}

// TestColdClusterIsAskedOnce has many take locks at once through a client that
// does not know the cluster yet.
func TestColdClusterIsAskedOnce(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, _ := startCluster(t, server.Redis{})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	n := newNodes(rdb, 0)
	asked := func() (sum int64) {
		for _, s := range append(c.Masters[:3:3], c.Replicas...) {
			sum += commandsOf(t, s)["cluster|slots"]
		}
		return sum
	}
	before := asked()
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() { must[*redis.Client](t)(n.owner(ctx, limit, mainKey(t.Name()))) })
	}
	all.Wait()
	if got := asked() - before; got != 1 {
		t.Errorf("asked %d times who has which slots", got)
	}
}
