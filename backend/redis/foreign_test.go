package redis

import (
	"context"
	"slices"
	"testing"
	"time"

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

// TestKeysOfOthersBesideALock has somebody else use one of the other keys of a lock that is held, and that others
// may wait for. What fails for it has written nothing: nobody loses the lock, or a place in the queue.
func TestKeysOfOthersBesideALock(t *testing.T) {
	t.Parallel()
	unlock := func(ctx context.Context, _ *dlock.Client, l *dlock.Lease) error { return l.Unlock(ctx) }
	breaks := func(ctx context.Context, c *dlock.Client, l *dlock.Lease) error {
		return c.Break(ctx, l.Name(), l.Token())
	}
	for what, c := range map[string]struct {
		key   string
		waits string // who: a reader, or a writer
		do    func(context.Context, *dlock.Client, *dlock.Lease) error
	}{
		"unlock, a reader waits": {":r", "r", unlock},
		"unlock, a writer waits": {":a", "w", unlock},
		"downgrade, a reader waits": {":a", "r", func(ctx context.Context, _ *dlock.Client, l *dlock.Lease) error {
			return l.Downgrade(ctx)
		}},
		"break":                 {":x", "", breaks},
		"break, a reader waits": {":r", "r", breaks},
		"lock": {":a", "", func(ctx context.Context, c *dlock.Client, l *dlock.Lease) error {
			_, err := c.Mutex(l.Name()).Lock(ctx)
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := server.Start(t, server.Redis{})
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			admin, name, other := plainClient(t, s), t.Name(), openClient(t, s, nil)
			lease := must[*dlock.Lease](t)(openClient(t, s, &dlock.Options{TTL: 10 * time.Second}).RWMutex(name).Lock(ctx))
			if c.waits != "" {
				m := other.RWMutex(name)
				wait := map[string]dlock.Locker{"r": m.RLocker(), "w": m}[c.waits]
				go func() { _, _ = wait.Lock(ctx) }()
				eventually(t, "one waits", func() bool { return admin.ZCard(ctx, mainKey(name)+":q").Val() == 1 })
			}
			must[int64](t)(admin.Del(ctx, mainKey(name)+c.key).Result())
			must[string](t)(admin.Set(ctx, mainKey(name)+c.key, "bob", 0).Result())
			queued := admin.ZRange(ctx, mainKey(name)+":q", 0, -1).Val()
			is(t, c.do(ctx, other, lease), dlock.ErrConflict)
			if now := admin.ZRange(ctx, mainKey(name)+":q", 0, -1).Val(); !slices.Equal(now, queued) {
				t.Errorf("the queue is %q, and was %q", now, queued)
			}
			if admin.HGet(ctx, mainKey(name), "o").Val() == "" {
				t.Error("nobody has the lock")
			}
		})
	}
}

// TestEntryBesideAKeyOfAnother has somebody else use the key of those who read. Its expiry is not the lock's.
func TestEntryBesideAKeyOfAnother(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	ctx, admin, name := within(t), plainClient(t, s), t.Name()
	m := openClient(t, s, nil).RWMutex(name)
	lease := must[*dlock.Lease](t)(m.Lock(ctx))
	must[string](t)(admin.Set(ctx, mainKey(name)+":r", "bob", 0).Result())
	must[int64](t)(admin.HSet(ctx, mainKey(name), "d", "0").Result()) // as after ten minutes
	must[*dlock.Lease](t)(m.Lock(lease.Context(ctx)))
	if left := admin.PTTL(ctx, mainKey(name)+":r").Val(); left != -1 {
		t.Errorf("it ends in %v", left)
	}
}

// TestRenewalBesideAKeyOfAnother has somebody else use the key of those who read. A Downgrade is told so, and the lease
// to write goes on: its renewals leave the expiry of that key alone.
func TestRenewalBesideAKeyOfAnother(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	ctx, admin, name := within(t), plainClient(t, s), t.Name()
	lease := must[*dlock.Lease](t)(openClient(t, s, &dlock.Options{TTL: 6 * time.Second}).RWMutex(name).Lock(ctx))
	must[string](t)(admin.Set(ctx, mainKey(name)+":r", "bob", 0).Result())
	is(t, lease.Downgrade(ctx), dlock.ErrConflict)
	must[int64](t)(admin.HSet(ctx, mainKey(name), "d", "0").Result()) // as after ten minutes
	eventually(t, "it is renewed", func() bool { return admin.HGet(ctx, mainKey(name), "d").Val() != "0" })
	if left := admin.PTTL(ctx, mainKey(name)+":r").Val(); left != -1 {
		t.Errorf("it ends in %v", left)
	}
}
