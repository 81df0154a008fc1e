package redis

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
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

// A forgotten connection is one that something on the way has forgotten while nobody used it. Its
// client hears of that once it has sent something.
type forgotten struct {
	net.Conn
	is, sent *atomic.Bool
}

func (c forgotten) Write(b []byte) (int, error) {
	if c.is.Load() {
		c.sent.Store(true)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c forgotten) Read(b []byte) (int, error) {
	if c.sent.Load() {
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return c.Conn.Read(b)
}

// TestQuestionsPastForgottenConnections has many connections of a pool be forgotten. That is no news
// of the server, which answers a ping, and says which names there are.
func TestQuestionsPastForgottenConnections(t *testing.T) {
	t.Parallel()
	const connections = 30
	s := server.Start(t, server.Redis{})
	dial := redis.NewDialer(&redis.Options{DialTimeout: limit})
	for name, ask := range map[string]func(context.Context, *Backend) error{
		"ping": func(ctx context.Context, b *Backend) error {
			_, err := b.Ping(ctx)
			return err
		},
		"names": func(ctx context.Context, b *Backend) error {
			for _, err := range b.Names(ctx, "") {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := within(t)
			var is atomic.Pointer[atomic.Bool]
			is.Store(new(atomic.Bool))
			c := redis.NewClient(&redis.Options{
				Addr: s.Addr(), DisableIdentity: true, MaxRetries: -1, PoolSize: connections,
				PipelinePoolSize: -1, // a ping is a pipeline
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return forgotten{conn, is.Load(), new(atomic.Bool)}, err
				},
			})
			t.Cleanup(func() { _ = c.Close() })
			b := newBackend(t, c, nil)
			var all []*redis.Conn
			for range connections {
				conn := c.Conn()
				must[any](t)(nil, conn.Ping(ctx).Err())
				all = append(all, conn)
			}
			for _, conn := range all {
				must[any](t)(nil, conn.Close())
			}
			is.Swap(new(atomic.Bool)).Store(true)
			if err := ask(ctx, b); err != nil {
				t.Error(err)
			}
		})
	}
}
