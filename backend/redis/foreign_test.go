package redis

import (
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestDowngradeBesideAnotherKey has somebody else use the key of those who read, while a lock is held to
// write. A Downgrade is told so, and takes the lock from nobody.
func TestDowngradeBesideAnotherKey(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	ctx, admin, name := t.Context(), plainClient(t, s), t.Name()
	lease := must[*dlock.Lease](t)(openClient(t, s, nil).RWMutex(name).Lock(ctx))
	must[string](t)(admin.Set(ctx, mainKey(name)+":r", "bob", 0).Result())
	is(t, lease.Downgrade(ctx), dlock.ErrConflict)
	is(t, lease.Err(), nil)
	_, err := openClient(t, s, nil).Mutex(name).TryLock(ctx)
	is(t, err, dlock.ErrHeld)
	is(t, lease.Unlock(ctx), nil)
}
