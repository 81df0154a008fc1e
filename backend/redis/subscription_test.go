package redis

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
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
		h.channels[address{}] = useless
		h.subscribe(address{}, useless)
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
