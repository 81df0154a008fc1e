package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
)

// A joinsKV counts the requests to join, which are what is sent through Do.
type joinsKV struct {
	clientv3.KV
	joins atomic.Int64
	free  chan struct{} // closed when those that do may hold back are to go on
	do    func(n int64, ctx context.Context, send func(context.Context) (clientv3.OpResponse, error)) (clientv3.OpResponse, error)
}

func (k *joinsKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	send := func(ctx context.Context) (clientv3.OpResponse, error) { return k.KV.Do(ctx, op) }
	n := k.joins.Add(1)
	if k.do == nil {
		return send(ctx)
	}
	return k.do(n, ctx, send)
}

// counting returns a backend whose requests to join are counted.
func counting(t testing.TB) (*etcd.Backend, *joinsKV) {
	c := raw(t, shared.Addr())
	kv := &joinsKV{KV: c.KV, free: make(chan struct{})}
	c.KV = kv
	b := etcd.New(c, &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { must(t, b.Close(timed(t))) })
	return b, kv
}

// blocking returns a backend whose first n requests to join wait until free is closed.
func blocking(t testing.TB, blocked int64) (*etcd.Backend, *joinsKV) {
	b, kv := counting(t)
	kv.do = func(n int64, ctx context.Context, send func(context.Context) (clientv3.OpResponse, error)) (clientv3.OpResponse, error) {
		if n <= blocked {
			<-kv.free
			ctx = context.WithoutCancel(ctx)
		}
		return send(ctx)
	}
	return b, kv
}

// givenUp waits until the only session of the test has given a request up.
func givenUp(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	eventually(t, "a request is given up", func() bool {
		found, err := admin.Get(timed(t), prefix(t)+"/s/", clientv3.WithPrefix())
		must(t, err)
		return len(found.Kvs) > 1
	})
}

// TestLateRequest has a request to join arrive when it has been given up. It is not
// carried out, and its key is not used again: what has deleted that may arrive again.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	for what, wait := range map[string]bool{"lock": true, "try": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			admin := raw(t, shared.Addr())
			b, kv := counting(t)
			late := make(chan error, 1)
			kv.do = func(n int64, ctx context.Context, send func(context.Context) (clientv3.OpResponse, error)) (clientv3.OpResponse, error) {
				if n > 1 {
					return send(ctx)
				}
				go func() {
					<-kv.free
					_, err := send(context.WithoutCancel(ctx))
					late <- err
				}()
				<-ctx.Done()
				return clientv3.OpResponse{}, ctx.Err()
			}
			r := lineRequest
			r.Wait = wait
			h, err := b.Acquire(timed(t), r)
			for errors.Is(err, backend.ErrUnavailable) { // the machine is too busy to give up and ask again in time
				h, err = b.Acquire(timed(t), r)
			}
			must(t, err)
			givenUp(t, admin)
			close(kv.free)
			must(t, <-late)
			queued(t, admin, 1)
			must(t, b.Release(timed(t), h))
			h, err = b.Acquire(timed(t), r)
			must(t, err)
			if own := keys(t, admin)[0]; !strings.Contains(own, ".") {
				t.Errorf("the key %s is used again", own)
			}
			must(t, b.Release(timed(t), h))
		})
	}
}

// TestTryEndsWithItsContext ends the context of a TryLock that gives up a request without an
// answer. What it has begun for that ends too, and goes on in the background.
func TestTryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	admin := raw(t, shared.Addr())
	b, kv := counting(t)
	kv.do = func(int64, context.Context, func(context.Context) (clientv3.OpResponse, error)) (clientv3.OpResponse, error) {
		return clientv3.OpResponse{}, context.DeadlineExceeded
	}
	ctx, cancel := context.WithCancel(timed(t))
	first := &firstTxnKV{KV: kv.KV, before: func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}}
	kv.KV = first
	r := lineRequest
	r.Wait = false
	_, err := b.Acquire(ctx, r)
	is(t, err, backend.ErrUnavailable)
	is(t, first.ended, context.Canceled)
	givenUp(t, admin)
}

// A firstTxnKV calls before with the context of the first transaction.
type firstTxnKV struct {
	clientv3.KV
	once   sync.Once
	before func(context.Context) error
	ended  error
}

func (k *firstTxnKV) Txn(ctx context.Context) clientv3.Txn {
	k.once.Do(func() { k.ended = k.before(ctx) })
	return k.KV.Txn(ctx)
}

// TestUnansweredRequestAlone gives a request up while others of its session are on their
// way: none of them is sent again.
func TestUnansweredRequestAlone(t *testing.T) {
	const n = 10
	admin := raw(t, shared.Addr())
	b, kv := counting(t)
	kv.do = func(i int64, ctx context.Context, send func(context.Context) (clientv3.OpResponse, error)) (clientv3.OpResponse, error) {
		switch {
		case i <= n:
			<-kv.free
			ctx = context.WithoutCancel(ctx)
		case i == n+1:
			if _, err := send(ctx); err != nil {
				t.Error(err)
			}
			return clientv3.OpResponse{}, context.DeadlineExceeded
		}
		return send(ctx)
	}
	var all sync.WaitGroup
	for i := range n {
		r := lineRequest
		r.Name = fmt.Sprint(i)
		all.Go(func() {
			h, err := b.Acquire(timed(t), r)
			if err != nil {
				t.Error(err)
				return
			}
			if err := b.Release(timed(t), h); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the others are on their way", func() bool { return kv.joins.Load() == n })
	h, err := b.Acquire(timed(t), lineRequest)
	must(t, err)
	givenUp(t, admin)
	close(kv.free)
	all.Wait()
	must(t, b.Release(timed(t), h))
	if got := kv.joins.Load(); got != n+2 {
		t.Errorf("%d requests to join were sent for %d locks, of which one was not answered", got, n+1)
	}
	queued(t, admin, 0)
}

// TestNoRoomForARequest asks for a lock while all requests that may be under way have no
// answer.
func TestNoRoomForARequest(t *testing.T) {
	t.Parallel()
	const most = 128
	b, kv := blocking(t, most)
	ctx, cancel := context.WithCancel(timed(t))
	var all sync.WaitGroup
	for range most {
		all.Go(func() { b.Acquire(ctx, lineRequest) })
	}
	eventually(t, "there is no room", func() bool { return kv.joins.Load() == most })
	_, err := b.Acquire(timed(t), lineRequest)
	is(t, err, backend.ErrUnavailable)
	cancel()
	close(kv.free)
	all.Wait()
}
