package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestReleaserLooksAfterTheNext hands a lock to one who listens and then says
// nothing. Who is behind it in the queue cannot know, and nobody else asks: it
// is up to the client that has let go of the lock.
func TestReleaserLooksAfterTheNext(t *testing.T) {
	ctx := within(t)
	lease := must[*dlock.Lease](t)(openClient(t, shared, nil).Mutex(t.Name()).Lock(ctx))

	c := plainClient(t, shared)
	listener := c.Subscribe(ctx, channelPrefix+t.Name())
	defer listener.Close()
	must[any](t)(listener.Receive(ctx))
	silent := []string{"w100:" + t.Name() + ":1", "w100:" + t.Name() + ":2"}
	for _, id := range silent {
		call := acquireScript.call(lockKey(t.Name()).args(5), id, 100, "w")
		call[0], call[1] = "eval", acquireScript.source
		must[any](t)(c.Do(ctx, call...).Result())
	}
	must[any](t)(nil, lease.Unlock(ctx))
	messages := listener.Channel()
	for _, id := range silent {
		awaitGrant(t, messages, id)
	}
}

// TestSoonerCheckCounts plans a check for later than another one that is to come, as
// for a grant that nobody may confirm and then for a hold that ends by itself.
func TestSoonerCheckCounts(t *testing.T) {
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	k := lockKey(t.Name())
	b.watch.plan(b, k, time.Hour)
	b.watch.plan(b, k, time.Millisecond)
	b.watch.plan(b, k, time.Hour)
	eventually(t, "the sooner check", func() bool {
		b.watch.mu.Lock()
		defer b.watch.mu.Unlock()
		return len(b.watch.timers) == 0
	})
}

// TestCloseTellsTheHead closes a client whose hold goes on for a while, and whose own waiter
// was ahead in the queue. Who is the head now hears of that: it would ask no sooner than in
// 5 s, however soon the hold ends.
func TestCloseTellsTheHead(t *testing.T) {
	ctx, c := within(t), plainClient(t, shared)
	b, other := newBackend(t, plainClient(t, shared), nil), newBackend(t, plainClient(t, shared), nil)
	acquire := func(b *Backend, client string) <-chan error {
		ended := make(chan error, 1)
		go func() { _, err := b.Acquire(ctx, requestOf(t, client, backend.Exclusive)); ended <- err }()
		return ended
	}
	h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "holder", backend.Exclusive)))
	ahead := acquire(b, "ahead")
	eventually(t, "it waits", func() bool { return waiting(t, c) == 1 })
	next := acquire(other, "next")
	eventually(t, "both wait", func() bool { return waiting(t, c) == 2 })
	listener := c.Subscribe(ctx, other.channelOf(lockKey(t.Name()), slug(t)+"next"))
	defer listener.Close()
	must[any](t)(listener.Receive(ctx))
	must[any](t)(nil, b.Expire(ctx, h, time.Hour))
	must[any](t)(nil, b.Close(ctx))
	is(t, <-ahead, backend.ErrClosed)
	told := must[any](t)(listener.ReceiveTimeout(ctx, limit/12)) // it was sent before Close returned
	if m, ok := told.(*redis.Message); !ok || !strings.HasPrefix(m.Payload, "poll ") {
		t.Errorf("the head is told %v", told)
	}
	must[any](t)(nil, other.Close(ctx))
	is(t, <-next, backend.ErrClosed)
}

// TestCheckPastBrokenConnections has all connections of a client break while nobody uses them, as
// a server ends those that are idle, and nothing but the next request of each show it. Who is the
// head of a queue that the client looks after hears of that all the same, and not 5 s later.
func TestCheckPastBrokenConnections(t *testing.T) {
	const connections = 4
	ctx, admin := within(t), plainClient(t, shared)
	o := *admin.Options()
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	way := &forgetfulWay{tells: true}
	c.AddHook(way)
	b, other := newBackend(t, c, nil), newBackend(t, plainClient(t, shared), nil)
	h := must[*backend.Hold](t)(other.Acquire(ctx, requestOf(t, "holder", backend.Exclusive)))
	next := make(chan *backend.Hold, 1)
	go func() { next <- must[*backend.Hold](t)(other.Acquire(ctx, requestOf(t, "next", backend.Exclusive))) }()
	eventually(t, "it waits", func() bool { return waiting(t, admin) == 1 })
	k := lockKey(t.Name())
	listener := admin.Subscribe(ctx, other.channelOf(k, slug(t)+"next"))
	defer listener.Close()
	must[any](t)(listener.Receive(ctx))
	useIdle(t, c, connections)
	way.forget()
	b.check(ctx, k)
	told := must[any](t)(listener.ReceiveTimeout(ctx, time.Second)) // it was sent before check returned
	if m, ok := told.(*redis.Message); !ok || !strings.HasPrefix(m.Payload, "poll ") {
		t.Errorf("it is told %v", told)
	}
	if n := way.lost.Load(); n < connections {
		t.Errorf("%d connections were found to be broken", n)
	}
	must[any](t)(nil, other.Release(ctx, h))
	must[any](t)(nil, other.Release(ctx, <-next))
}

// awaitGrant waits until the lock is handed to id.
func awaitGrant(t *testing.T, messages <-chan *redis.Message, id string) {
	t.Helper()
	ctx := within(t)
	for {
		select {
		case m := <-messages:
			if strings.HasPrefix(m.Payload, id+" ") {
				return
			}
		case <-ctx.Done():
			t.Fatalf("the lock was never handed to %s", id)
		}
	}
}

// TestWhoRanOutIsTold has the clock of a server go on beyond the time of one who waits, who
// would ask no sooner than in some seconds. The next release tells it that it has been passed
// over, and it comes back.
func TestWhoRanOutIsTold(t *testing.T) {
	ctx, c := within(t), plainClient(t, shared)
	b, other := newBackend(t, plainClient(t, shared), nil), newBackend(t, plainClient(t, shared), nil)
	h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "holder", backend.Exclusive)))
	next := make(chan *backend.Hold, 1)
	go func() { next <- must[*backend.Hold](t)(other.Acquire(ctx, requestOf(t, "next", backend.Exclusive))) }()
	eventually(t, "it waits", func() bool { return waiting(t, c) == 1 })
	listener := c.Subscribe(ctx, other.channelOf(lockKey(t.Name()), slug(t)+"next"))
	defer listener.Close()
	must[any](t)(listener.Receive(ctx))
	key := mainKey(t.Name())
	id := must[[]string](t)(c.ZRange(ctx, key+":a", 0, -1).Result())[0]
	must[int64](t)(c.ZAdd(ctx, key+":a", redis.Z{Score: 1, Member: id}).Result())
	must[int64](t)(c.HSet(ctx, key, "a", 0).Result())
	must[any](t)(nil, b.Release(ctx, h))
	told := must[any](t)(listener.ReceiveTimeout(ctx, limit/12)) // it was sent before Release returned
	if m, ok := told.(*redis.Message); !ok || !strings.HasPrefix(m.Payload, "poll ") {
		t.Errorf("it is told %v", told)
	}
	must[any](t)(nil, other.Release(ctx, <-next))
}
