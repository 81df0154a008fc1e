package etcd_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
)

// TestNoObserver has a hold that nobody observes be waited for, and lose its lease.
func TestNoObserver(t *testing.T) {
	t.Parallel()
	admin := raw(t, shared.Addr())
	b := etcd.New(raw(t, shared.Addr()), &etcd.Options{Prefix: prefix(t)})
	t.Cleanup(func() { must(t, b.Close(context.Background())) })
	h, err := b.Acquire(timed(t), lineRequest)
	must(t, err)
	waiter := start(t, timed(t), open(t, lineRequest.TTL, shared.Addr()).Mutex(lineRequest.Name).Lock)
	queued(t, admin, 2)
	b.Renew(timed(t), []*backend.Hold{h}, func(_ *backend.Hold, err error) { must(t, err) })
	first, err := admin.Get(timed(t), prefix(t)+"/l/", clientv3.WithFirstCreate()...)
	must(t, err)
	_, err = admin.Revoke(timed(t), clientv3.LeaseID(first.Kvs[0].Lease))
	must(t, err)
	is(t, b.Release(timed(t), h), backend.ErrLost)
	must(t, waiter.granted().Unlock(timed(t)))
}
