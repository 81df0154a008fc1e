package redis

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestLoginChanges changes the password of a client that holds a lock and ends its
// connections: it logs in with what it is given then, and keeps the lock. Without
// rights it loses the lock and says why it gets no other, until it has them again.
func TestLoginChanges(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin := plainClient(t, s)
	set := func(rules ...any) {
		t.Helper()
		must[any](t)(admin.Do(ctx, append([]any{"acl", "setuser", "app"}, rules...)...).Result())
	}
	set("on", ">old", "~dlock:*", "resetchannels", "&dlock:*", "+@all")
	var password atomic.Value
	password.Store("old")
	c := openClient(t, s, &dlock.Options{
		TTL:         5 * time.Second,
		Credentials: func(context.Context) (string, string, error) { return "app", password.Load().(string), nil },
	})
	m := c.Mutex("a")
	l := must[*dlock.Lease](t)(m.Lock(ctx))
	expiry := func() int { return must[int](t)(admin.HGet(ctx, mainKey("a"), "e").Int()) }

	password.Store("new")
	set("resetpass", ">new")
	before := expiry()
	must[any](t)(admin.Do(ctx, "client", "kill", "user", "app").Result())
	eventually(t, "the hold outlives the lease that it had", func() bool { return expiry() > before+5000 })
	is(t, l.Err(), nil)

	set("-@all")
	<-l.Context(ctx).Done()
	is(t, l.Err(), dlock.ErrLost)
	_, err := c.Mutex("b").Lock(ctx)
	is(t, err, dlock.ErrAuth)
	set("+@all")
	must[*dlock.Lease](t)(m.Lock(ctx))
}
