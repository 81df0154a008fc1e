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

// A slotMove takes the slot of a lock, one of twenty that are held, from one node to another.
type slotMove struct {
	t        *testing.T
	b        *Backend
	from, to *redis.Client
	slot     int64
}

func newSlotMove(t *testing.T) *slotMove {
	ctx := within(t)
	cluster := server.StartCluster(t, server.Redis{}, 5*time.Second)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	m := &slotMove{t: t, b: newBackend(t, rdb, nil)}
	for i := range 20 {
		must[*backend.Hold](t)(m.b.Acquire(ctx, backend.Request{Name: fmt.Sprint("job", i), Mode: backend.Exclusive, TTL: time.Minute, ID: backend.ID{Client: "c", Seq: uint64(i + 1)}}))
	}
	key := mainKey("job0")
	m.slot = must[int64](t)(rdb.ClusterKeySlot(ctx, key).Result())
	for _, master := range cluster.Masters {
		c := plainClient(t, master)
		if _, err := c.HGet(ctx, key, "o").Result(); err == nil {
			m.from = c
		} else if m.to == nil {
			m.to = c
		}
	}
	m.set(m.to, "importing", m.id(m.from))
	m.set(m.from, "migrating", m.id(m.to))
	return m
}

func (m *slotMove) id(c *redis.Client) string {
	return must[string](m.t)(c.Do(within(m.t), "cluster", "myid").Text())
}

func (m *slotMove) set(c *redis.Client, state ...any) {
	must[any](m.t)(c.Do(within(m.t), append([]any{"cluster", "setslot", m.slot}, state...)...).Result())
}

func (m *slotMove) moveKeys() {
	ctx := within(m.t)
	host, port, err := net.SplitHostPort(m.to.Options().Addr)
	must[any](m.t)(nil, err)
	for {
		keys := must[[]string](m.t)(m.from.Do(ctx, "cluster", "getkeysinslot", m.slot, 10).StringSlice())
		if len(keys) == 0 {
			return
		}
		for _, k := range keys {
			must[any](m.t)(m.from.Do(ctx, "migrate", host, port, k, 0, 5000).Result())
		}
	}
}

// names are those that are listed.
func (m *slotMove) names(when string) map[string]bool {
	names := map[string]bool{}
	for name, err := range m.b.Names(within(m.t), "") {
		if err != nil {
			m.t.Errorf("%s: %v", when, err)
		}
		names[name] = true
	}
	return names
}

// TestNamesWhileASlotMigrates has a slot with a held lock move from one node to another.
func TestNamesWhileASlotMigrates(t *testing.T) {
	t.Parallel()
	m := newSlotMove(t)
	look := func(when string) {
		if names := m.names(when); !names["job0"] {
			t.Errorf("%s: job0 is missing among %d", when, len(names))
		}
	}
	look("before its key moves")
	m.moveKeys()
	look("while the slot is open")
	for _, c := range []*redis.Client{m.to, m.from} {
		m.set(c, "node", m.id(m.to))
	}
	look("when it has moved")
}

// TestNamesBesideKeysLeftBehind has a node with a key whose slot another one has: a move that
// was broken off.
func TestNamesBesideKeysLeftBehind(t *testing.T) {
	t.Parallel()
	m := newSlotMove(t)
	m.moveKeys()
	for _, c := range []*redis.Client{m.to, m.from} {
		m.set(c, "stable")
	}
	names := m.names("with a key left behind")
	for i := 1; i < 20; i++ {
		if name := fmt.Sprint("job", i); !names[name] {
			t.Errorf("%s is missing among %d", name, len(names))
		}
	}
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
