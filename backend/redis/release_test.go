package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// several takes locks of a backend.
func several(t *testing.T, b *Backend, n int) []*backend.Hold {
	t.Helper()
	holds := make([]*backend.Hold, n)
	for i := range holds {
		mode := backend.Exclusive
		if i%3 == 0 {
			mode = backend.Shared
		}
		holds[i] = must[*backend.Hold](t)(b.Acquire(within(t), backend.Request{
			Name: fmt.Sprintf("%s/%d", t.Name(), i), ID: backend.ID{Client: slug(t), Seq: uint64(i + 1)},
			Mode: mode, TTL: limit, Observer: silentObserver{},
		}))
	}
	return holds
}

// outcomesOf is what ReleaseAll reports, each hold once.
func outcomesOf(t *testing.T, b *Backend, holds []*backend.Hold) map[*backend.Hold]error {
	t.Helper()
	var mu sync.Mutex
	out := make(map[*backend.Hold]error)
	b.ReleaseAll(within(t), holds, func(h *backend.Hold, err error) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := out[h]; twice {
			t.Errorf("%s is reported twice", h.Name)
		}
		out[h] = err
	})
	if len(out) != len(holds) {
		t.Errorf("%d of %d holds reported", len(out), len(holds))
	}
	return out
}

// TestReleaseAll gives back many holds, of which one has a waiter, one is lost, and the
// keys of one were overwritten by somebody else: each has its own fate.
func TestReleaseAll(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	c := plainClient(t, s)
	b := New(c, nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	holds := several(t, b, 250)
	wanted, lost, foreign := holds[1], holds[2], holds[4]
	got := make(chan error, 1)
	go func() {
		r := wanted.Request
		r.ID, r.Wait = backend.ID{Client: "waiter", Seq: 1}, true
		h, err := b.Acquire(ctx, r)
		if err == nil {
			err = b.Release(ctx, h)
		}
		got <- err
	}()
	eventually(t, "it waits", func() bool { return c.ZCard(ctx, mainKey(wanted.Name)+":q").Val() == 1 })
	must[any](t)(c.Del(ctx, mainKey(lost.Name)).Result())
	must[any](t)(c.Set(ctx, mainKey(foreign.Name), "", 0).Result())

	before := scriptsOf(t, s)
	out := outcomesOf(t, b, holds)
	must[any](t)(nil, <-got)
	for _, h := range holds {
		switch err := out[h]; {
		case h == lost && !errors.Is(err, backend.ErrLost):
			t.Errorf("one that is lost: %v", err)
		case h == foreign && !errors.Is(err, backend.ErrConflict):
			t.Errorf("one of another type: %v", err)
		case h != lost && h != foreign && err != nil:
			t.Errorf("%s: %v", h.Name, err)
		}
		if h != foreign && (c.HExists(ctx, mainKey(h.Name), "o").Val() || c.ZCard(ctx, mainKey(h.Name)+":r").Val() > 0) {
			t.Errorf("%s is held", h.Name)
		}
	}
	if n := scriptsOf(t, s) - before; n > 10 {
		t.Errorf("%d scripts for %d holds", n, len(holds))
	}
}

func TestReleaseAllInACluster(t *testing.T) {
	t.Parallel()
	cluster, _ := sharedCluster.use(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	b := New(rdb, nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	for h, err := range outcomesOf(t, b, several(t, b, 50)) {
		if err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
	}
}

// TestReleaseAllAgain has the reply to a release of many be lost: that is no loss of any.
func TestReleaseAllAgain(t *testing.T) {
	t.Parallel()
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	holds := several(t, b, 5)
	all := make([]release, len(holds))
	for i, h := range holds {
		all[i] = newRelease(h)
	}
	must[answer](t)(b.run(within(t), time.Second, releaseScript, releaseCall(all)))
	for i := range all {
		all[i].repeated = true
		a := answer{values: []any{"NOT_HELD", int64(0)}}
		if err := b.released(&all[i], a, nil); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// TestExpire lets a hold go on for a while without its holder: nothing ends it before,
// nothing prolongs it, and then it is the turn of whoever waits.
func TestExpire(t *testing.T) {
	const left = 300 * time.Millisecond
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx, c := within(t), plainClient(t, shared)
			b := New(c, nil)
			t.Cleanup(func() { _ = b.Close(within(t)) })
			r := backend.Request{Name: t.Name(), ID: backend.ID{Client: slug(t), Seq: 1}, Mode: mode, TTL: limit, Observer: silentObserver{}}
			h := must[*backend.Hold](t)(b.Acquire(ctx, r))
			got := make(chan *backend.Hold, 1)
			go func() {
				r := r
				r.ID.Seq, r.Mode, r.Wait = 2, backend.Exclusive, true
				got <- must[*backend.Hold](t)(b.Acquire(ctx, r))
			}()
			eventually(t, "it waits", func() bool { return waiting(t, c) == 1 })
			must[any](t)(nil, b.Expire(ctx, h, left))
			ends := time.Now().Add(left)
			must[any](t)(nil, b.Expire(ctx, h, left/2)) // as if the first reply had been lost
			b.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, err error) { is(t, err, backend.ErrLost) })
			is(t, b.Release(ctx, h), backend.ErrLost)
			next := <-got
			if early := time.Until(ends); early > 50*time.Millisecond {
				t.Errorf("the next one has the lock %v too early", early)
			}
			if next.Token <= h.Token {
				t.Errorf("token %d after %d", next.Token, h.Token)
			}
			must[any](t)(nil, b.Release(ctx, next))
			is(t, b.Expire(ctx, h, left), backend.ErrLost)
		})
	}
}

// TestExpireOutlivesTheLease has a hold go on for longer than its TTL, and its client go.
func TestExpireOutlivesTheLease(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	b := New(c, nil)
	r := backend.Request{Name: t.Name(), ID: backend.ID{Client: slug(t), Seq: 1}, Mode: backend.Exclusive, TTL: time.Second, Observer: silentObserver{}}
	h := must[*backend.Hold](t)(b.Acquire(ctx, r))
	must[any](t)(nil, b.Expire(ctx, h, time.Hour))
	must[any](t)(nil, b.Close(ctx))
	if e := must[int64](t)(c.HGet(context.Background(), mainKey(t.Name()), "e").Int64()); time.Until(time.UnixMilli(e)) < 59*time.Minute {
		t.Errorf("it ends at %v", time.UnixMilli(e))
	}
}

// TestReleaseBesideARenewal begins to release holds while a renewal of them is still under
// way, as that of holds that have run out may be: neither looks at what the other writes.
func TestReleaseBesideARenewal(t *testing.T) {
	t.Parallel()
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	holds := several(t, b, 20)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		b.Renew(within(t), holds, func(*backend.Hold, error) {})
	}()
	for under := true; under; {
		select {
		case <-renewed:
			under = false
		default:
		}
		for _, h := range holds {
			r := newRelease(h)
			_, _ = r.state.leaseEnd(), releaseCall([]release{r})
		}
	}
	outcomesOf(t, b, holds)
}
