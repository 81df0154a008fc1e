package redis

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// A lateSubscriber is a connection on which no subscription leaves before let.
type lateSubscriber struct {
	net.Conn
	let <-chan struct{}
}

func (l lateSubscriber) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) {
		<-l.let
	}
	return l.Conn.Write(b)
}

// openLate is a party on s whose subscription leaves when let is closed.
func openLate(t *testing.T, s *server.Server, let <-chan struct{}) *dlock.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return lateSubscriber{conn, let}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	c := must[*dlock.Client](t)(dlock.New(New(rdb, nil), nil))
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// TestQueueHoldsWhoCanBeTold sees to it that no place in the queue is given to
// a client that does not listen yet: a hand-over would skip it.
func TestQueueHoldsWhoCanBeTold(t *testing.T) {
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	holder := openClient(t, s, nil).Mutex(t.Name())
	lease := must[*dlock.Lease](t)(holder.Lock(ctx))

	let := make(chan struct{})
	late := openLate(t, s, let).Mutex(t.Name())
	asked := scriptsOf(t, s)
	locked := make(chan *dlock.Lease, 1)
	go func() {
		l, err := late.Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		locked <- l
	}()
	eventually(t, "it has asked", func() bool { return scriptsOf(t, s) > asked })
	c := plainClient(t, s)
	if n := c.ZCard(ctx, mainKey(t.Name())+":q").Val(); n != 0 {
		t.Errorf("%d in the queue before anybody listens", n)
	}
	close(let)
	eventually(t, "it waits", func() bool { return c.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1 })
	if err := lease.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := (<-locked).Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestCloseWaitsForUselessSubscription closes a listener while one of its subscriptions,
// which another has replaced, still has a goroutine.
func TestCloseWaitsForUselessSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no server")
		}})
		defer rdb.Close()
		h := newListener(rdb, nil, slog.New(slog.DiscardHandler), false)
		s := &subscription{listener: h, ps: rdb.Subscribe(t.Context()), stop: func() {}, done: make(chan struct{})}
		useless := &channel{listener: h, stop: func() {}, subscription: s}
		h.channels[""] = useless
		h.subscribe("", useless)
		closed := make(chan struct{})
		go func() {
			h.close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed too early")
		default:
		}
		close(s.done)
		<-closed
	})
}

// A brokenWriter is a connection that breaks as soon as something is to be subscribed to.
type brokenWriter struct {
	net.Conn
	breaks *atomic.Bool
}

func (c brokenWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) && c.breaks.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, errors.New("broken")
	}
	return c.Conn.Write(b)
}

// TestSubscribesAgainAfterFailedWrite has a subscription break while its reader is busy
// with a message: what the client library then subscribes to by itself lacks a channel.
func TestSubscribesAgainAfterFailedWrite(t *testing.T) {
	t.Parallel()
	var breaks atomic.Bool
	var dialled atomic.Int64
	rdb := redis.NewClient(&redis.Options{Addr: shared.Addr(), DisableIdentity: true, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return brokenWriter{conn, &breaks}, err
	}})
	defer rdb.Close()
	l := newListener(rdb, nil, slog.New(slog.DiscardHandler), false)
	defer l.close()
	busy, read := make(chan struct{}), make(chan struct{})
	l.onUnclaimed = func(key, string) {
		close(busy)
		<-read
	}
	first, second := t.Name()+"1", t.Name()+"2"
	if !l.subscribe(first, nil).works(within(t), limit) {
		t.Fatal("the first subscription does not work")
	}
	c := plainClient(t, shared)
	must[int64](t)(c.Publish(within(t), first, "id 1 1 1 0 "+mainKey(t.Name())).Result())
	<-busy
	breaks.Store(true)
	late := l.subscribe(second, nil)
	eventually(t, "the write has failed", func() bool { return !breaks.Load() })
	l.moving.Wait() // until the client library has done what it does then
	close(read)
	eventually(t, "both are subscribed to", func() bool {
		n := c.PubSubNumSub(context.Background(), first, second).Val()
		return late.status() == working && n[first] == 1 && n[second] == 1
	})
	if n := dialled.Load(); n > 4 {
		t.Errorf("%d connections", n)
	}
}

// TestDeniedSubscriptionIsTriedAgain has a user be allowed the channel while somebody polls.
func TestDeniedSubscriptionIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	admin := plainClient(t, s)
	user := func(channels string) {
		must[any](t)(admin.Do(within(t), "acl", "setuser", "deaf", "on", ">secret", "~*", "+@all", "resetchannels", channels).Result())
	}
	user("&other")
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "deaf", Password: "secret", DisableIdentity: true})
	defer rdb.Close()
	b := New(rdb, nil)
	defer func() { _ = b.Close(within(t)) }()
	r := backend.Request{Name: t.Name(), ID: backend.ID{Client: "1", Seq: 1}, Mode: backend.Exclusive, TTL: time.Hour, Wait: true, Observer: silentObserver{}}
	held := must[*backend.Hold](t)(b.Acquire(within(t), r))
	r.ID.Seq++
	got := make(chan *backend.Hold, 1)
	go func() {
		h, err := b.Acquire(within(t), r)
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	polls := func() bool {
		ids := admin.ZRange(context.Background(), mainKey(t.Name())+":q", 0, -1).Val()
		return len(ids) == 1 && idPolls(ids[0])
	}
	eventually(t, "it polls", polls)
	user("&dlock:*")
	b.listener.mu.Lock()
	for _, c := range b.listener.channels {
		c.began = c.began.Add(-pollAfter)
	}
	b.listener.mu.Unlock()
	eventually(t, "it waits to be told", func() bool {
		return !polls() && admin.ZCard(context.Background(), mainKey(t.Name())+":q").Val() == 1
	})
	must[any](t)(nil, b.Release(within(t), held))
	must[any](t)(nil, b.Release(within(t), <-got))
}
