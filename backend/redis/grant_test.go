package redis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestHoldCountsFromItsRequest has every answer come late. What the server
// grants counts from before that.
func TestHoldCountsFromItsRequest(t *testing.T) {
	t.Parallel()
	const late = 200 * time.Millisecond
	ctx := within(t)
	p := must[*faultnet.Proxy](t)(faultnet.Listen(shared.Addr()))
	defer p.Close()
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), DisableIdentity: true})
	defer rdb.Close()
	b := New(rdb, nil)
	defer b.Close(context.Background())

	p.Delay(faultnet.ToClient, late, 0)
	h := must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit, Observer: silentObserver{},
	}))
	if age := time.Since(h.Sent); age < late {
		t.Errorf("the hold counts from %v ago, its answer came after %v", age, late)
	}
	b.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, err error) { must[any](t)(nil, err) })
	if age := time.Since(h.Sent); age < late {
		t.Errorf("a renewal counts from %v ago, its answer came after %v", age, late)
	}
	must[any](t)(nil, b.Release(ctx, h))
}

// TestTimely asks which grants by message may be believed without asking the
// server: those that were no longer on their way than clocks can tell.
func TestTimely(t *testing.T) {
	const at = 1_000_000_000_000 // the server's µs when the waiter was queued
	for _, c := range []struct {
		what   string
		queued time.Duration // so long ago, by our clock
		later  time.Duration // then it was granted, by the server's
		lasts  time.Duration
		want   bool
	}{
		{"just come", 2 * time.Second, 2 * time.Second, 5 * time.Second, true},
		{"long on its way", 2 * time.Second, time.Second, 5 * time.Second, false},
		{"from before it was queued", 0, -10 * time.Millisecond, 5 * time.Second, false},
		{"from a clock that went forward", 2 * time.Second, time.Minute, 5 * time.Second, false},
	} {
		w := &acquisition{Request: backend.Request{TTL: time.Minute}, queuedAt: moment{time.Now().Add(-c.queued), at}}
		us := at + c.later.Microseconds()
		g := &grant{us: us, expiry: us/1000 + c.lasts.Milliseconds(), byMessage: true}
		if got := w.isTimely(g); got != c.want {
			t.Errorf("a grant %s is believed: %v", c.what, got)
		}
	}
}

// TestGrantOfADoubtfulRequest has a message come, in time, for an id that the
// server knows nothing of. It is believed only if no other request of that id
// may be under way.
func TestGrantOfADoubtfulRequest(t *testing.T) {
	ctx := within(t)
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	for _, doubt := range []bool{false, true} {
		now := time.Now()
		r := &backend.Request{
			Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: time.Minute, Observer: silentObserver{},
		}
		c := &acquisition{Request: *r, b: b, key: lockKey(t.Name()), queuedAt: moment{now, now.UnixMicro()}}
		c.renewID()
		c.doubt = doubt
		g := grant{id: c.id, us: now.UnixMicro(), expiry: now.Add(time.Minute).UnixMilli(), byMessage: true}
		h, err := c.accept(ctx, g)
		must[any](t)(nil, err)
		if believed := h != nil; believed == doubt {
			t.Errorf("believed: %v, with another request under way: %v", believed, doubt)
		}
		if h != nil {
			b.listener.removeHold(stateOf(h))
		}
	}
}

// TestGrantOfARequestThatWasGrantedTwice has a request sent twice and granted twice, and somebody
// else in between. The message of the first grant is none of the second: a token that is less than
// the other's would come after it.
func TestGrantOfARequestThatWasGrantedTwice(t *testing.T) {
	ctx := within(t)
	b, admin := New(plainClient(t, shared), nil), plainClient(t, shared)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	c := b.newAcquisition(&backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit, Wait: true,
	}, nil)
	first := c.grantOf(must[answer](t)(c.ask(ctx, "w")))
	first.byMessage, c.doubt = true, true
	first.expiry = time.Now().UnixMilli()
	must[int64](t)(admin.HSet(ctx, string(c.key), "e", first.expiry).Result())
	var other *backend.Hold
	eventually(t, "the grant has run out", func() (had bool) {
		r := requestOf(t, "other", backend.Exclusive)
		h, err := b.Acquire(ctx, r)
		other = h
		return err == nil
	})
	must[any](t)(nil, b.Release(ctx, other))
	second := c.grantOf(must[answer](t)(c.ask(ctx, "w")))
	if second.token <= int64(other.Token) {
		t.Fatalf("the second grant has token %d, the one before %d", second.token, other.Token)
	}
	h := must[*backend.Hold](t)(c.accept(ctx, first))
	if h == nil || int64(h.Token) != second.token {
		t.Fatalf("the hold is %+v, its token is %d, and another had %d before", h, second.token, other.Token)
	}
	must[any](t)(nil, b.Release(ctx, h))
}

// TestGrantAboutToRunOut has a waiter hear, as it asks, of a grant that is nearly over. It
// is no hold before the server has prolonged it, and leaves nothing behind if it is over.
func TestGrantAboutToRunOut(t *testing.T) {
	ctx := within(t)
	b, admin := New(plainClient(t, shared), &Options{PollOnly: true}), plainClient(t, shared)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	for i, over := range []bool{false, true} {
		c := b.newAcquisition(&backend.Request{
			Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: uint64(i)}, Mode: backend.Exclusive, TTL: limit, Wait: true,
		}, nil)
		k := string(c.key)
		must[answer](t)(c.ask(ctx, "w"))
		must[any](t)(admin.HIncrBy(ctx, k, "e", -(limit - unconfirmed/4).Milliseconds()).Result())
		a := must[answer](t)(c.ask(ctx, "p"))
		if a.status() != "GRANTED" {
			t.Fatal(a.values)
		}
		if over {
			must[any](t)(admin.HDel(ctx, k, "o", "e").Result())
		}
		h, err := c.accept(ctx, c.grantOf(a))
		must[any](t)(nil, err)
		if over {
			if h != nil || c.owed || c.doubt {
				t.Error("a hold that is over is believed, or to be given back")
			}
			continue
		}
		if h == nil || h.Granted < limit-time.Second {
			t.Fatalf("the hold lasts no longer than its grant: %+v", h)
		}
		if at := must[int64](t)(admin.HGet(ctx, k, "e").Int64()); at < time.Now().Add(limit/2).UnixMilli() {
			t.Error("the server has not prolonged it")
		}
		must[any](t)(nil, b.Release(ctx, h))
	}
}

// TestConfirmationWhoseAnswerIsLost has the server prolong a grant as its waiter asks, and the answer
// get lost until the time of the grant itself is over. The hold has been there all the time, and
// its waiter does not go to the end of the queue.
func TestConfirmationWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	proxy := proxied(t)
	o := &redis.Options{Addr: proxy.Addr(), DisableIdentity: true, ReadTimeout: limit}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	b, admin := New(client, nil), plainClient(t, shared)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	c := b.newAcquisition(&backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: 30 * time.Second, Wait: true,
	}, nil)
	g := c.grantOf(must[answer](t)(c.ask(ctx, "w")))
	g.byMessage = true
	g.expiry = time.Now().Add(unconfirmed).UnixMilli() // as a grant by a message ends
	must[int64](t)(admin.HSet(ctx, string(c.key), "e", g.expiry).Result())
	must[string](t)(admin.ScriptLoad(ctx, renewScript.source).Result())
	proxy.Blackhole(faultnet.ToClient)
	time.AfterFunc(unconfirmed+5*time.Second/2, func() { proxy.Restore(faultnet.BothWays) })
	h := must[*backend.Hold](t)(c.accept(ctx, g))
	if h == nil || int64(h.Token) != g.token {
		t.Fatalf("the server has prolonged the grant with token %d, and its waiter has %+v", g.token, h)
	}
	must[any](t)(nil, b.Release(ctx, h))
}
