package etcd

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// NewClient makes one client for the whole process, on a connection that there is.
func NewClient(c *clientv3.Client) (*dlock.Client, error) {
	return dlock.New(etcd.New(c, nil), &dlock.Options{TTL: 10 * time.Second})
}

// After does the same with this library.
func After(ctx context.Context, client *dlock.Client, name string, work func(context.Context) error) error {
	return dlock.Do(ctx, client.Mutex(name), func(ctx context.Context, _ *dlock.Lease) error {
		return work(ctx)
	})
}
