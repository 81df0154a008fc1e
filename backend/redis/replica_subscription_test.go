package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// subscriberOf subscribes to one channel on one server, not as a client of a cluster does.
func subscriberOf(t *testing.T, s *server.Server, sharded bool, channel string) *redis.PubSub {
	t.Helper()
	c := plainClient(t, s)
	ps := c.Subscribe(t.Context())
	t.Cleanup(func() { _ = ps.Close() })
	if sharded {
		must[any](t)(nil, ps.SSubscribe(t.Context(), channel))
	} else {
		must[any](t)(nil, ps.Subscribe(t.Context(), channel))
	}
	must[any](t)(ps.ReceiveTimeout(t.Context(), limit))
	return ps
}

// testAside hands a lock over when the next waiter listens on a replica, where messages
// come through without being counted: it is told nothing, and the lock is for the one
// behind it.
func testAside(t *testing.T, master, replica *server.Server, sharded bool, name string) {
	ctx := within(t)
	k, c := lockKey(name), plainClient(t, master)
	channel := func(client string) string {
		if sharded {
			return string(k) + shardChannel + client
		}
		return channelPrefix + client
	}
	run := func(s *script, n int, args ...any) []any {
		t.Helper()
		if sharded {
			s = s.in(dialect{cluster: true, keep: defaultKeep})
		}
		all := append([]any{"eval", s.source, n}, stringsOf(k.args(n))...)
		reply := must[any](t)(c.Do(ctx, append(all, args...)...).Result())
		list, _ := reply.([]any)
		return list
	}
	id := func(client string) string { return fmt.Sprintf("w60000:%s:1", client) }
	aside, there := subscriberOf(t, replica, sharded, channel("aside")), subscriberOf(t, master, sharded, channel("there"))
	run(acquireScript, 5, id("holder"), 60000, "w")
	if reply := run(acquireScript, 5, id("aside"), 60000, "w"); reply[0] != "QUEUED" || reply[5] != int64(0) {
		t.Errorf("who listens on a replica is told %v", reply)
	}
	if reply := run(acquireScript, 5, id("there"), 60000, "w"); reply[0] != "QUEUED" || reply[5] != int64(1) {
		t.Errorf("who listens on the master is told %v", reply)
	}
	run(releaseScript, 5, id("holder"), 0)
	if o := c.HGet(ctx, string(k), "o").Val(); o != id("there") {
		t.Errorf("%q holds the lock", o)
	}
	if g := heard(t, there); g == "end" {
		t.Error("who listens on the master was told nothing")
	}
	publish := c.Publish
	if sharded {
		publish = c.SPublish
	}
	// The nodes of a cluster may not be connected all to all yet, and say nothing then.
	ended, end := context.WithCancel(ctx)
	defer end()
	go func() {
		for ended.Err() == nil {
			publish(ended, channel("aside"), "end")
			time.Sleep(20 * time.Millisecond)
		}
	}()
	g := heard(t, aside)
	for strings.HasPrefix(g, "poll ") {
		g = heard(t, aside)
	}
	if g != "end" {
		t.Errorf("who listens on a replica was told %q", g)
	}
}

func heard(t *testing.T, ps *redis.PubSub) string {
	t.Helper()
	for {
		switch m := must[any](t)(ps.ReceiveTimeout(t.Context(), limit)).(type) {
		case *redis.Message:
			return m.Payload
		}
	}
}

// stringsOf has the keys as the client library takes them.
func stringsOf(args []any) []any {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
		if s, ok := a.(*string); ok {
			all[i] = *s
		}
	}
	return all
}

func TestNothingIsSentToWhoIsNotCounted(t *testing.T) {
	t.Parallel()
	r := server.StartReplicated(t, 1, server.Redis{})
	testAside(t, r.Primary, r.Replicas[0], false, t.Name())
}

func TestNothingIsSentToWhoIsNotCountedInACluster(t *testing.T) {
	t.Parallel()
	c, admin := sharedCluster.use(t)
	testAside(t, c.Masters[0], c.Replicas[0], !tooOld(), nameOn(t, admin, c.Masters[0]))
}

// TestSubscriptionFollowsTheWrites has a client subscribe on a replica of the server that
// it writes to: it moves its subscription before it waits, and again and again for as
// long as it leads to the wrong server.
func TestSubscriptionFollowsTheWrites(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	r := server.StartReplicated(t, 1, server.Redis{})
	holder := openClient(t, r.Primary, nil)
	lease, err := holder.Mutex(t.Name()).Lock(ctx)
	must[any](t)(nil, err)

	p := must[*faultnet.Proxy](t)(faultnet.Listen(r.Replicas[0].Addr()))
	t.Cleanup(func() { _ = p.Close() })
	b := New(plainClient(t, r.Primary), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	b.listener.client = redis.NewClient(&redis.Options{Addr: p.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = b.listener.client.Close() })
	got := make(chan error, 1)
	go func() {
		h, err := b.Acquire(ctx, backend.Request{
			Name: t.Name(), ID: backend.ID{Client: "follower", Seq: 1}, Mode: backend.Exclusive, TTL: limit, Wait: true, Observer: silentObserver{},
		})
		if err == nil {
			err = b.Release(ctx, h)
		}
		got <- err
	}()
	primary := plainClient(t, r.Primary)
	eventually(t, "it tries again", func() bool { return p.Stats().Accepted >= 3 })
	p.SetTarget(r.Primary.Addr())
	subscribed := func() bool {
		return primary.PubSubNumSub(context.Background(), channelPrefix+"follower").Val()[channelPrefix+"follower"] == 1
	}
	eventually(t, "it subscribes where it writes", subscribed)
	began := time.Now()
	must[any](t)(nil, lease.Unlock(ctx))
	must[any](t)(nil, <-got)
	t.Logf("handed over in %v", time.Since(began))
}
