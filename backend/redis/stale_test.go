package redis

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestConnectionsThatBrokeUnseen has all connections of a pool end while nobody uses them, as a
// firewall does that forgets what is idle. The client library cannot see that before it sends: with
// TLS it does not look. A call goes past all of them.
func TestConnectionsThatBrokeUnseen(t *testing.T) {
	t.Parallel()
	const connections = 30
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin := plainClient(t, s)
	dial := redis.NewDialer(&redis.Options{DialTimeout: limit})
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr(), DisableIdentity: true, MaxRetries: -1, PoolSize: connections,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return struct{ net.Conn }{conn}, err
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	b := newBackend(t, c, nil)
	r := requestOf(t, "a", backend.Exclusive)
	r.TTL = 10 * time.Second
	h := must[*backend.Hold](t)(b.Acquire(ctx, r))
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"renewal", func() (failed error) {
			b.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, err error) { failed = err })
			return failed
		}},
		{"release", func() error { return b.Release(ctx, h) }},
		{"lock", func() error {
			_, err := b.Acquire(ctx, requestOf(t, "b", backend.Exclusive))
			return err
		}},
	} {
		var all []*redis.Conn
		for range connections {
			conn := c.Conn()
			must[any](t)(nil, conn.Ping(ctx).Err())
			all = append(all, conn)
		}
		for _, conn := range all {
			must[any](t)(nil, conn.Close())
		}
		if n := c.PoolStats().IdleConns; n != connections {
			t.Fatalf("%d connections are idle, want %d", n, connections)
		}
		must[int64](t)(admin.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Result())
		if err := call.do(); err != nil {
			t.Errorf("%s: %v", call.name, err)
		}
	}
}
