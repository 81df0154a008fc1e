package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// fill has the server refuse whatever may need memory. The result ends that.
func fill(t *testing.T, c *redis.Client) (empty func()) {
	t.Helper()
	ctx := context.Background()
	must[any](t)(c.ConfigSet(ctx, "maxmemory-policy", "noeviction").Result())
	must[any](t)(c.ConfigSet(ctx, "maxmemory", "100kb").Result())
	if err := c.Set(ctx, t.Name(), "", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("the server is not full: %v", err)
	}
	return func() { must[any](t)(c.ConfigSet(ctx, "maxmemory", "0").Result()) }
}

// TestFullServer has a server be full for longer than a lease: no hold is lost, and
// nobody else gets what is held.
func TestFullServer(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin := plainClient(t, s)
	o := &dlock.Options{TTL: 2 * loadTTL}
	a, b := openClient(t, s, o), openClient(t, s, o)
	writer := must[*dlock.Lease](t)(a.Mutex("written").Lock(ctx))
	reader := must[*dlock.Lease](t)(a.RWMutex("read").RLock(ctx))
	got := make(chan *dlock.Lease, 1)
	go func() {
		l, _ := b.Mutex("written").Lock(ctx)
		got <- l
	}()
	eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey("written")+":q").Val() == 1 })

	empty := fill(t, admin)
	for end := time.Now().Add(o.TTL * 4 / 3); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if writer.Err() != nil || reader.Err() != nil {
			t.Fatalf("lost: %v, %v", writer.Err(), reader.Err())
		}
		if l, err := b.Mutex("read").TryLock(ctx); err == nil {
			t.Fatalf("a writer beside a reader, token %d", l.Token())
		}
	}
	nested := must[*dlock.Lease](t)(a.Mutex("written").Lock(writer.Context(ctx)))
	must[any](t)(nil, nested.Unlock(ctx))
	must[any](t)(nil, writer.Unlock(ctx))
	must[any](t)(nil, reader.Unlock(ctx))
	empty()
	must[any](t)(nil, (<-got).Unlock(ctx))
}

// TestScriptsOnAFullServer runs each script that prolongs or ends a hold or a wait.
func TestScriptsOnAFullServer(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	c := plainClient(t, s)
	ctx := within(t)
	n := 0
	lock := func() key { n++; return lockKey(fmt.Sprintf("%s/%d", t.Name(), n)) }
	run := func(s *script, keys []any, args ...any) any {
		t.Helper()
		all := append([]any{"eval", s.source, len(keys)}, stringsOf(keys)...)
		reply, err := c.Do(ctx, append(all, args...)...).Result()
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return reply
	}
	acquire := func(k key, id string) {
		t.Helper()
		run(acquireScript, k.args(5), id, 60000, "w")
	}
	const w1, w2, r1 = "w60000p:a:1", "w60000p:b:1", "r60000p:a:1"
	holds := func(k key, id string) bool {
		return id != "" && c.HGet(ctx, string(k), "o").Val() == id || c.ZScore(ctx, string(k)+":r", id).Val() > 0
	}
	type use struct {
		what  string
		id    string // the holder
		queue string // who waits; empty: nobody
		call  func(k key)
		holds string // who holds then; empty: nobody
	}
	expiry := time.Now().Add(time.Hour).UnixMilli()
	uses := []use{
		{"renew", w1, "", func(k key) { run(renewScript, k.args(1), 1, 70000, w1) }, w1},
		{"renew until", w1, "", func(k key) { run(renewScript, k.args(1), 1, -expiry, w1) }, w1},
		{"renew with a token", w1, "", func(k key) { run(renewScript, k.args(1), 1, 70000, w1, 1, expiry*1000) }, w1},
		{"renew what may be shared", w1, "", func(k key) { run(renewScript, k.args(5), 5, 70000, w1) }, w1},
		{"renew a reader", r1, "", func(k key) { run(renewScript, k.args(5), 5, 70000, r1) }, r1},
		{"renew a reader by one key", r1, "", func(k key) { run(renewScript, []any{string(k) + ":r"}, 1, 70000, r1) }, r1},
		{"enter", w1, "", func(k key) { run(enterScript, k.args(2), w1, 60000, 2, 1) }, w1},
		{"enter as a reader", r1, "", func(k key) { run(enterScript, k.args(2), r1, 60000, 2, 1) }, r1},
		{"downgrade", w1, "", func(k key) { run(convertScript, k.args(5), w1, "shared", 60000, 0, 0) }, w1},
		{"downgrade with a queue", w1, w2, func(k key) { run(convertScript, k.args(5), w1, "shared", 60000, 0, 0) }, w1},
		{"expire", w1, w2, func(k key) { run(convertScript, k.args(5), w1, "expiring", 60000, 0, 0) }, w1 + "!"},
		{"expire as a reader", r1, "", func(k key) { run(convertScript, k.args(5), r1, "expiring", 60000, 0, 0) }, r1 + "!"},
		{"release", w1, "", func(k key) { run(releaseScript, k.args(5), w1, 0) }, ""},
		{"release with a token", w1, "", func(k key) { run(releaseScript, k.args(5), w1, 0, expiry*1000) }, ""},
		{"release and refuse", w1, "", func(k key) { run(releaseScript, k.args(5), w1, 1) }, ""},
		{"release a reader", r1, "", func(k key) { run(releaseScript, k.args(5), r1, 0) }, ""},
		{"release for the next", w1, w2, func(k key) { run(releaseScript, k.args(5), w1, 0) }, w2},
		{"release what is not held", w1, "", func(k key) { run(releaseScript, k.args(5), w2, 1) }, w1},
		{"drop", w1, "", func(k key) { run(dropScript, k.args(1), w1) }, ""},
		{"leave the queue", w1, w2, func(k key) { run(releaseScript, k.args(5), w2, 1) }, w1},
		{"go on waiting", w1, w2, func(k key) { run(acquireScript, k.args(5), w2, 60000, "p") }, w1},
		{"check", w1, w2, func(k key) { run(checkScript, k.args(5)) }, w1},
	}
	locks := make([]key, len(uses))
	for i, u := range uses {
		locks[i] = lock()
		acquire(locks[i], u.id)
		if u.queue != "" {
			acquire(locks[i], u.queue)
		}
	}
	empty := fill(t, c)
	for i, u := range uses {
		u.call(locks[i])
		if u.holds != "" && !holds(locks[i], u.holds) {
			t.Errorf("%s: %q does not hold the lock", u.what, u.holds)
		}
		if u.holds == "" && (holds(locks[i], u.id) || holds(locks[i], u.queue)) {
			t.Errorf("%s: the lock is held", u.what)
		}
	}
	empty()
}
