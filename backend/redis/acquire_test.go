package redis

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

func TestUnfitClients(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"shard": shared.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	clients := map[string]redis.UniversalClient{"ring": ring, "none": nil}
	for name, o := range map[string]*redis.ClusterOptions{
		"ReadOnly": {ReadOnly: true}, "RouteByLatency": {RouteByLatency: true}, "RouteRandomly": {RouteRandomly: true},
	} {
		o.Addrs = []string{"127.0.0.1:1"}
		c := redis.NewClusterClient(o)
		t.Cleanup(func() { _ = c.Close() })
		clients[name] = c
	}
	for name, unfit := range clients {
		t.Run(name, func(t *testing.T) {
			c := must[*dlock.Client](t)(dlock.New(New(unfit, nil), nil))
			m := c.RWMutex(t.Name())
			for _, try := range []func(context.Context) (*dlock.Lease, error){m.Lock, m.TryLock, m.RLock} {
				if _, err := try(within(t)); !errors.Is(err, dlock.ErrInvalidConfig) {
					t.Fatal(err)
				}
			}
			must[any](t)(nil, c.Close(within(t)))
		})
	}
}

func TestReadersShare(t *testing.T) {
	ctx := within(t)
	a, b := openClient(t, shared, nil).RWMutex(t.Name()), openClient(t, shared, nil).RWMutex(t.Name())
	w := must[*dlock.Lease](t)(a.Lock(ctx))
	var all sync.WaitGroup
	leases := make(chan *dlock.Lease, 2)
	for _, m := range []*dlock.RWMutex{a, b} {
		all.Go(func() { leases <- must[*dlock.Lease](t)(m.RLock(ctx)) })
	}
	if err := w.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	one, two := <-leases, <-leases
	if one.Token() != two.Token() || one.Token() <= w.Token() {
		t.Errorf("tokens %d, %d after %d", one.Token(), two.Token(), w.Token())
	}
	for _, l := range []*dlock.Lease{one, two} {
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestSilentAfterItsFirstAnswer has a server say that the lock is held, and then
// nothing while the waiter subscribes: it had its first answer, so it waits on.
func TestSilentAfterItsFirstAnswer(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	p := proxied(t)
	holder := must[*dlock.Lease](t)(openClient(t, shared, nil).Mutex(t.Name()).Lock(ctx))
	waiter := openURL(t, "redis://"+p.Addr(), &dlock.Options{TTL: time.Minute})
	must[string](t)(plainClient(t, shared).ScriptLoad(ctx, acquireScript.source).Result())
	asked, heard := atomic.Int32{}, make(chan struct{})
	p.OnRequest(func(_ int, req []byte) {
		switch req = bytes.ToLower(req); {
		case bytes.Contains(req, []byte("\r\nsubscribe\r\n")):
			<-heard // it begins beside the first request
		case bytes.Contains(req, []byte("\r\nevalsha\r\n")) && asked.Add(1) == 2:
			p.Blackhole(faultnet.ToClient)
		}
	})
	done := make(chan error, 1)
	go func() {
		l, err := waiter.Mutex(t.Name()).Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("the wait is over: %v (held: %v)", err, errors.Is(err, dlock.ErrHeld))
	case <-time.After(backend.FirstAnswer + time.Second): // a first answer that never comes ends the wait before
	}
	close(heard)
	p.Restore(faultnet.ToClient)
	must[any](t)(nil, holder.Unlock(ctx))
	must[any](t)(nil, <-done)
}

// withUser adds a user app, whose password is old, and returns who may change its rules.
func withUser(t *testing.T, s *server.Server) (admin *redis.Client, set func(rules ...any)) {
	t.Helper()
	admin = plainClient(t, s)
	set = func(rules ...any) {
		t.Helper()
		must[any](t)(admin.Do(within(t), append([]any{"acl", "setuser", "app"}, rules...)...).Result())
	}
	set("on", ">old", "~dlock:*", "resetchannels", "&dlock:*", "+@all")
	return admin, set
}

// TestLoginChanges changes the password of a client that holds a lock and ends its
// connections: it logs in with what it is given then, and keeps the lock. Without
// rights it loses the lock and says why it gets no other, until it has them again.
func TestLoginChanges(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin, set := withUser(t, s)
	var password atomic.Value
	password.Store("old")
	c := openClient(t, s, &dlock.Options{
		TTL:         5 * time.Second,
		Credentials: func(context.Context) (string, string, error) { return "app", password.Load().(string), nil },
	})
	m := c.Mutex("a")
	l := must[*dlock.Lease](t)(m.Lock(ctx))
	expiry := func() int64 { return must[int64](t)(admin.HGet(ctx, mainKey("a"), "e").Int64()) }

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

// TestLoginChangesUnderARequest changes the password as a request is carried out whose reply is
// lost. The client, which is given the old password once more after its call has failed, gives
// back the lock that it does not know of.
func TestLoginChangesUnderARequest(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin, set := withUser(t, s)
	p := must[*faultnet.Proxy](t)(faultnet.Listen(s.Addr()))
	t.Cleanup(func() { _ = p.Close() })
	p.SetFraming(faultnet.RESP)
	var failed, once atomic.Bool
	password := func() string {
		if failed.Load() && once.Swap(true) {
			return "new"
		}
		return "old"
	}
	c := openURL(t, "redis://"+p.Addr()+"?pool_size=1", &dlock.Options{
		TTL:         time.Hour,
		Credentials: func(context.Context) (string, string, error) { return "app", password(), nil },
	})
	must[string](t)(admin.ScriptLoad(ctx, acquireScript.source).Result())
	set("resetpass", ">new")
	p.DropReplyAfter(runs(acquireScript))
	_, err := c.Mutex("a").TryLock(ctx)
	is(t, err, dlock.ErrAuth)
	isHeld := func() bool { return must[bool](t)(admin.HExists(ctx, mainKey("a"), "o").Result()) }
	if !isHeld() {
		t.Fatal("the request was not carried out")
	}
	failed.Store(true)
	eventually(t, "the lock is given back", func() bool { return !isHeld() })
}
