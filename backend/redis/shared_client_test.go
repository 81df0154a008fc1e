package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestTwoOnOneClient has two clients use one client of a program's own, which hand a lock to and fro. When
// the first is closed the other goes on, and so does the program.
func TestTwoOnOneClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g := plainClient(t, server.Start(t, server.Redis{}))
	a, b := onClient(t, g, time.Minute), onClient(t, g, 2*time.Second)
	for range 10 {
		held := must[*dlock.Lease](t)(a.Mutex("x").Lock(ctx))
		next := make(chan error, 1)
		go func() { next <- turns(ctx, b.Mutex("x"), 1) }()
		<-held.Wanted()
		must[any](t)(nil, held.Unlock(ctx))
		must[any](t)(nil, <-next)
	}
	kept := must[*dlock.Lease](t)(b.Mutex("y").Lock(ctx))
	must[any](t)(nil, a.Close(ctx))
	must[any](t)(nil, turns(ctx, b.Mutex("x"), 1))
	must[any](t)(nil, kept.Unlock(ctx))
	must[any](t)(nil, b.Close(ctx))
	must[string](t)(g.Ping(ctx).Result())
}

// onClient is one party on a client of a program's own.
func onClient(t *testing.T, g goredis.UniversalClient, ttl time.Duration) *dlock.Client {
	t.Helper()
	return must[*dlock.Client](t)(dlock.New(New(g, nil), &dlock.Options{TTL: ttl}))
}
