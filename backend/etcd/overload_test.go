package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// A joinsKV counts the requests to join, which are what is sent through Do.
type joinsKV struct {
	clientv3.KV
	joins   atomic.Int64
	blocked int64         // how many wait, the first ones,
	free    chan struct{} // until it is closed
}

// blocking returns a backend whose first n requests to join wait until free is closed.
func blocking(t testing.TB, n int64) (*etcd.Backend, *joinsKV) {
	c := raw(t, shared.Addr())
	kv := &joinsKV{KV: c.KV, blocked: n, free: make(chan struct{})}
	c.KV = kv
	b := etcd.New(c, &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { must(t, b.Close(timed(t))) })
	return b, kv
}

func (k *joinsKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if k.joins.Add(1) <= k.blocked {
		<-k.free
		ctx = context.WithoutCancel(ctx)
	}
	return k.KV.Do(ctx, op)
}

// epochs returns how many epochs the only session of the test has begun.
func epochs(t testing.TB, admin *clientv3.Client) int64 {
	t.Helper()
	found, err := admin.Get(timed(t), prefix(t)+"/s/", clientv3.WithPrefix())
	must(t, err)
	for _, kv := range found.Kvs {
		if strings.HasSuffix(string(kv.Key), "/epoch") {
			return kv.Version
		}
	}
	return 0
}

// TestUnansweredRequestsAreDeletedTogether holds the server's answers back for longer than
// a request waits for one, while two hundred locks are asked for. A new epoch makes all
// requests fail that are under way, so there are few of them.
func TestUnansweredRequestsAreDeletedTogether(t *testing.T) {
	t.Parallel()
	const n, most = 200, 40 // each of 128 requests may begin an epoch
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	c := raw(t, p.Addr())
	kv := &joinsKV{KV: c.KV}
	c.KV = kv
	b := etcd.New(c, &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { must(t, b.Close(timed(t))) })
	first, err := b.Acquire(timed(t), lineRequest)
	must(t, err)
	must(t, b.Release(timed(t), first))

	p.Delay(faultnet.ToClient, 2500*time.Millisecond, 0)
	holds := make([]*backend.Hold, n)
	var all sync.WaitGroup
	for i := range holds {
		r := lineRequest
		r.Name = fmt.Sprint(i)
		all.Go(func() {
			ctx := timed(t)
			for err := backend.ErrUnavailable; err != nil && ctx.Err() == nil; {
				holds[i], err = b.Acquire(ctx, r)
			}
		})
	}
	eventually(t, "an epoch begins", func() bool { return epochs(t, admin) > 0 })
	p.Delay(faultnet.ToClient, 0, 0)
	all.Wait()
	got := epochs(t, admin)
	t.Logf("%d epochs, %d requests to join for %d locks", got, kv.joins.Load(), n)
	if got > most {
		t.Errorf("%d epochs have begun, want at most %d", got, most)
	}
	for _, h := range holds {
		must(t, b.Release(timed(t), h))
	}
	queued(t, admin, 0)
}

// TestNobodyWaitsForAnotherTry has a request to join fail because of a new epoch when its
// caller has gone: it is not sent again.
func TestNobodyWaitsForAnotherTry(t *testing.T) {
	admin := raw(t, shared.Addr())
	b, kv := blocking(t, 1)
	ctx, cancel := context.WithCancel(timed(t))
	returned := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, lineRequest)
		returned <- err
	}()
	eventually(t, "the request is on its way", func() bool { return kv.joins.Load() == 1 })
	found, err := admin.Get(timed(t), prefix(t)+"/s/", clientv3.WithPrefix())
	must(t, err)
	session := found.Kvs[0]
	_, err = admin.Put(timed(t), string(session.Key)+"/epoch", "", clientv3.WithLease(clientv3.LeaseID(session.Lease)))
	must(t, err)
	cancel()
	is(t, <-returned, context.Canceled)
	other := lineRequest
	other.Name = "b"
	h, err := b.Acquire(timed(t), other) // by its second request, with the new epoch
	must(t, err)
	must(t, b.Release(timed(t), h))
	close(kv.free)
	sent := int64(3)
	eventually(t, "the request's key is used again", func() bool {
		h, err := b.Acquire(timed(t), lineRequest)
		must(t, err)
		sent++
		own := keys(t, admin)
		must(t, b.Release(timed(t), h))
		return !strings.Contains(own[0], ".")
	})
	if got := kv.joins.Load(); got != sent {
		t.Errorf("%d requests to join were sent, want %d", got, sent)
	}
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
	all.Wait()
	close(kv.free)
}
