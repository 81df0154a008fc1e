package etcd

import (
	"context"

	"github.com/dlock-go/dlock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Both is the version in between.
func Both(ctx context.Context, client *dlock.Client, etcd *clientv3.Client, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return Before(ctx, etcd, name, work)
	})
}
