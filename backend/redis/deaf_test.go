package redis

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// A deafWaiter waits for locks that somebody else holds. Its first subscription can go
// deaf: the connection lives, and nothing of what the server says comes through.
type deafWaiter struct {
	t          *testing.T
	s          *server.Server
	way        *faultnet.Proxy
	dialled    atomic.Int64
	holder, b  *Backend
	asked      *asked
	lock, next backend.Request
}

func newDeafWaiter(t *testing.T, every time.Duration) *deafWaiter {
	t.Helper()
	s := server.Start(t, server.Redis{})
	d := &deafWaiter{t: t, s: s, asked: &asked{}, way: must[*faultnet.Proxy](t)(faultnet.Listen(s.Addr()))}
	t.Cleanup(func() { _ = d.way.Close() })
	listening := redis.NewClient(&redis.Options{DisableIdentity: true, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr := s.Addr()
		if d.dialled.Add(1) == 1 {
			addr = d.way.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	t.Cleanup(func() { _ = listening.Close() })
	asking := plainClient(t, s)
	asking.AddHook(d.asked)
	d.holder, d.b = New(plainClient(t, s), nil), New(asking, nil)
	d.b.listener.client, d.b.listener.probing = listening, every
	for _, b := range []*Backend{d.holder, d.b} {
		t.Cleanup(func() { _ = b.Close(within(t)) })
	}
	d.lock = backend.Request{
		Name: t.Name(), ID: backend.ID{Client: "holder"}, Mode: backend.Exclusive, TTL: limit, Wait: true, Observer: silentObserver{},
	}
	d.next = d.lock
	d.next.ID.Client = "deaf"
	return d
}

// asked is a hook that counts how often those who wait ask how they stand.
type asked struct{ n atomic.Int64 }

func (*asked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		a.see(cmd)
		return next(ctx, cmd)
	}
}

func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			a.see(cmd)
		}
		return next(ctx, cmds)
	}
}

func (a *asked) see(cmd redis.Cmder) {
	if mode := firstKey + 5 + 2; len(cmd.Args()) > mode && cmd.Args()[mode] == "p" {
		a.n.Add(1)
	}
}

// begin has the holder take the lock, and the other one wait for it.
func (d *deafWaiter) begin() (held *backend.Hold, got <-chan *backend.Hold) {
	d.t.Helper()
	ctx := within(d.t)
	d.lock.ID.Seq++
	d.next.ID.Seq++
	held = must[*backend.Hold](d.t)(d.holder.Acquire(ctx, d.lock))
	result := make(chan *backend.Hold, 1)
	go func() {
		h, err := d.b.Acquire(ctx, d.next)
		if err != nil {
			d.t.Error(err)
		}
		result <- h
	}()
	admin := plainClient(d.t, d.s)
	eventually(d.t, "it waits", func() bool { return admin.ZCard(ctx, mainKey(d.lock.Name)+":q").Val() == 1 })
	return held, result
}

// handOver is a round in which the lock is given back after a time. It returns how often
// the waiter has asked for it.
func (d *deafWaiter) handOver(after time.Duration) int64 {
	d.t.Helper()
	before := d.asked.n.Load()
	held, got := d.begin()
	time.Sleep(after)
	must[any](d.t)(nil, d.holder.Release(within(d.t), held))
	must[any](d.t)(nil, d.b.Release(within(d.t), <-got))
	return d.asked.n.Load() - before
}

// TestDeafSubscription has a grant be learnt by asking: who should have been told of it
// subscribes anew, and is told of the next.
func TestDeafSubscription(t *testing.T) {
	t.Parallel()
	d := newDeafWaiter(t, time.Hour)
	d.handOver(0)
	d.way.Blackhole(faultnet.ToClient)
	if d.handOver(time.Second) == 0 { // the waiter then asks while it is granted the lock
		t.Error("nobody has asked, and nothing comes through")
	}
	eventually(t, "it has subscribed anew", func() bool {
		return d.b.listener.existing(d.b.channelOf(lockKey(d.next.Name), d.next.ID.Client)).status() == working && d.dialled.Load() == 2
	})
	told := false
	for range 5 { // the holder's watch may have the waiter ask in one of them
		told = told || d.handOver(0) == 0
	}
	if !told {
		t.Error("it asks for each grant that it could be told of")
	}
}

// TestDeafSubscriptionIsAsked has nothing come through while somebody waits.
func TestDeafSubscriptionIsAsked(t *testing.T) {
	t.Parallel()
	d := newDeafWaiter(t, time.Second)
	d.way.SetFraming(faultnet.RESP)
	held, got := d.begin()
	subscribed := d.way.Stats().Requests
	eventually(t, "a third probe follows two that were answered", func() bool { return d.way.Stats().Requests >= subscribed+3 })
	if n := d.dialled.Load(); n != 1 {
		t.Errorf("%d connections to subscribe on, all is well with the first", n)
	}
	d.way.Blackhole(faultnet.ToClient)
	eventually(t, "it subscribes anew", func() bool { return d.dialled.Load() >= 2 })
	must[any](t)(nil, d.holder.Release(within(t), held))
	must[any](t)(nil, d.b.Release(within(t), <-got))
}

// TestSubscribesLater has the first subscription take longer than anybody waits for it:
// who polls for that goes over to messages when it works.
func TestSubscribesLater(t *testing.T) {
	t.Parallel()
	d := newDeafWaiter(t, time.Hour)
	d.way.Blackhole(faultnet.ToClient)
	held, got := d.begin()
	admin := plainClient(t, d.s)
	queue := mainKey(d.lock.Name) + ":q"
	polls := func() bool {
		ids := admin.ZRange(context.Background(), queue, 0, -1).Val()
		return len(ids) == 1 && idPolls(ids[0])
	}
	eventually(t, "it polls", polls)
	d.way.Restore(faultnet.ToClient)
	eventually(t, "it waits to be told", func() bool { return !polls() && admin.ZCard(context.Background(), queue).Val() == 1 })
	must[any](t)(nil, d.holder.Release(within(t), held))
	must[any](t)(nil, d.b.Release(within(t), <-got))
}

func idPolls(id string) bool {
	_, polls, _ := parseID(id)
	return polls
}

// A forgetful connection loses the first SUBSCRIBE that is written to it.
type forgetful struct {
	net.Conn
	lost *atomic.Bool
}

func (f forgetful) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("\r\nsubscribe\r\n")) && f.lost.CompareAndSwap(false, true) {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

// TestLostSubscribe has the connection of a subscription live, and the server know nothing
// of the channel. Who waits hears of the grant by message soon, and not when the channel
// is so old that another may take its place.
func TestLostSubscribe(t *testing.T) {
	t.Parallel()
	d := newDeafWaiter(t, 100*time.Millisecond)
	lost := new(atomic.Bool)
	listening := redis.NewClient(&redis.Options{DisableIdentity: true, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, d.s.Addr())
		return forgetful{conn, lost}, err
	}})
	t.Cleanup(func() { _ = listening.Close() })
	d.b.listener.client = listening
	at := d.b.channelOf(lockKey(d.next.Name), d.next.ID.Client)
	first := d.b.listener.existing(at)
	works := false
	eventually(t, "another channel takes the place of the first, or is late", func() bool {
		works = d.b.listener.existing(at).status() == working
		return works || time.Since(first.began) > pollAfter/2
	})
	if !lost.Load() || !works {
		t.Errorf("lost: %v, found out: %v, after %v", lost.Load(), works, time.Since(first.began))
	}
	d.handOver(0)
}
