// Package redislock is a program that comes from github.com/bsm/redislock.
package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
)

const ttl = 6 * time.Second

// Before does the work while it holds a lock of redislock, which it refreshes.
func Before(ctx context.Context, locker *redislock.Client, name string, work func(context.Context) error) error {
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lock, err := locker.Obtain(wait, name, ttl, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	held, lost := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	defer close(stop) // also if work panics
	go refresh(ctx, lock, stop, lost)
	err = work(held)
	return errors.Join(err, lock.Release(context.WithoutCancel(ctx)))
}

func refresh(ctx context.Context, lock *redislock.Lock, stop <-chan struct{}, lost context.CancelCauseFunc) {
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if err := lock.Refresh(ctx, ttl, nil); err != nil {
				lost(err)
				return
			}
		}
	}
}
