package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestInspectRenewingReaders has more readers than a page, which renew their holds meanwhile.
func TestInspectRenewingReaders(t *testing.T) {
	t.Parallel()
	ctx, s := within(t), server.Start(t, server.Redis{})
	b := newBackend(t, plainClient(t, s), nil)
	const many = 4 * page
	holds := make([]*backend.Hold, many)
	var all sync.WaitGroup
	for i := range many {
		r := backend.Request{Name: t.Name(), Mode: backend.Shared, TTL: time.Minute, ID: backend.ID{Client: fmt.Sprintf("client%04d", i), Seq: 1}, Label: fmt.Sprint(i)}
		holds[i] = must[*backend.Hold](t)(b.Acquire(ctx, r))
	}
	stop := make(chan struct{})
	all.Go(func() {
		for i := 0; ; i = (i + 1) % many {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			b.Renew(ctx, holds[i:i+1], func(_ *backend.Hold, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
	})
	asks := newBackend(t, plainClient(t, s), nil)
	for range 5 {
		if n := len(must[backend.Snapshot](t)(asks.Inspect(ctx, t.Name())).Holders); n != many {
			t.Errorf("%d readers of %d", n, many)
		}
	}
	close(stop)
	all.Wait()
}

// TestNamesWhileASlotMigrates has a slot with a held lock move from one node to another.
func TestNamesWhileASlotMigrates(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	cluster := server.StartCluster(t, server.Redis{}, 5*time.Second)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	b := newBackend(t, rdb, nil)
	for i := range 20 {
		must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{Name: fmt.Sprint("job", i), Mode: backend.Exclusive, TTL: time.Minute, ID: backend.ID{Client: "c", Seq: uint64(i + 1)}}))
	}
	key := mainKey("job0")
	slot := must[int64](t)(rdb.ClusterKeySlot(ctx, key).Result())
	var from, to *redis.Client
	for _, m := range cluster.Masters {
		c := plainClient(t, m)
		if _, err := c.HGet(ctx, key, "o").Result(); err == nil {
			from = c
		} else if to == nil {
			to = c
		}
	}
	id := func(c *redis.Client) string { return must[string](t)(c.Do(ctx, "cluster", "myid").Text()) }
	must[any](t)(to.Do(ctx, "cluster", "setslot", slot, "importing", id(from)).Result())
	must[any](t)(from.Do(ctx, "cluster", "setslot", slot, "migrating", id(to)).Result())
	look := func(what string) {
		names := map[string]bool{}
		for name, err := range b.Names(ctx, "") {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			names[name] = true
		}
		if !names["job0"] {
			t.Errorf("%s: job0 is missing among %d", what, len(names))
		}
	}
	look("before its key moves")
	host, port, err := net.SplitHostPort(to.Options().Addr)
	must[any](t)(nil, err)
	for {
		keys := must[[]string](t)(from.Do(ctx, "cluster", "getkeysinslot", slot, 10).StringSlice())
		if len(keys) == 0 {
			break
		}
		for _, k := range keys {
			must[any](t)(from.Do(ctx, "migrate", host, port, k, 0, 5000).Result())
		}
	}
	look("while the slot is open")
	for _, c := range []*redis.Client{to, from} {
		must[any](t)(c.Do(ctx, "cluster", "setslot", slot, "node", id(to)).Result())
	}
	look("when it has moved")
}

// TestCloseWhileNamesIterates closes the client from the loop.
func TestCloseWhileNamesIterates(t *testing.T) {
	t.Parallel()
	ctx, s := within(t), server.Start(t, server.Redis{})
	h := openClient(t, s, nil)
	for i := range 700 {
		must[*dlock.Lease](t)(h.Mutex(fmt.Sprint("n", i)).Lock(ctx))
	}
	c := must[*dlock.Client](t)(dlock.Open(ctx, "redis://"+s.Addr(), nil))
	start, n := time.Now(), 0
	var last error
	for _, err := range c.Names(ctx, "") {
		if n++; n == 10 {
			must[any](t)(nil, c.Close(context.Background()))
			start = time.Now()
		}
		last = err
	}
	t.Logf("%d names, %v, after %v", n, last, time.Since(start))
	is(t, last, dlock.ErrClosed)
}
