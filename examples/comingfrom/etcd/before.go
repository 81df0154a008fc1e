// Package etcd is a program that comes from go.etcd.io/etcd/client/v3/concurrency.
package etcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Before does the work while it holds a lock of package concurrency.
func Before(ctx context.Context, etcd *clientv3.Client, name string, work func(context.Context) error) error {
	session, err := concurrency.NewSession(etcd, concurrency.WithTTL(10))
	if err != nil {
		return err
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, "/locks/"+name)
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	held, lost := context.WithCancel(ctx)
	defer lost()
	defer context.AfterFunc(session.Ctx(), lost)()
	err = work(held)
	return errors.Join(err, mutex.Unlock(context.WithoutCancel(ctx)))
}
