// Package redsync is a program that comes from github.com/go-redsync/redsync/v4.
package redsync

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
)

const expiry = 8 * time.Second

// Before does the work while it holds a lock of redsync, which it extends.
func Before(ctx context.Context, rs *redsync.Redsync, name string, work func(context.Context) error) error {
	mutex := rs.NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTries(1000))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	held, lost := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	defer close(stop) // also if work panics
	go extend(ctx, mutex, stop, lost)
	err := work(held)
	_, unlockErr := mutex.UnlockContext(context.WithoutCancel(ctx))
	return errors.Join(err, unlockErr)
}

func extend(ctx context.Context, mutex *redsync.Mutex, stop <-chan struct{}, lost context.CancelCauseFunc) {
	tick := time.NewTicker(expiry / 3)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if ok, err := mutex.ExtendContext(ctx); !ok {
				lost(err)
				return
			}
		}
	}
}
