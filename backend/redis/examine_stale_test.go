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

// TestExamineOnABrokenConnection has the server end the connections of a client that does not see so
// before it uses them, as one with TLS.
func TestExamineOnABrokenConnection(t *testing.T) {
	t.Parallel()
	ctx, s := within(t), server.Start(t, server.Redis{})
	own := redis.NewClient(&redis.Options{
		Addr: s.Addr(), DisableIdentity: true, MaxRetries: -1, ConnMaxIdleTime: time.Hour,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return struct{ net.Conn }{conn}, err // the client library cannot look at its socket
		},
	})
	defer own.Close()
	first, second := own.Conn(), own.Conn()
	must[any](t)(nil, first.Ping(ctx).Err())
	must[any](t)(nil, second.Ping(ctx).Err())
	must[any](t)(nil, first.Close())
	must[any](t)(nil, second.Close())
	must[int64](t)(plainClient(t, s).ClientKillByFilter(ctx, "type", "normal", "skipme", "yes").Result())
	if err := New(own, nil).Examine(ctx, func(backend.Finding) {}); err != nil {
		t.Errorf("Examine: %v", err)
	}
}
