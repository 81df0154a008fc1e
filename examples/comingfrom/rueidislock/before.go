// Package rueidislock is a program that comes from github.com/redis/rueidis/rueidislock.
package rueidislock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// patience is how long an answer of the server may take. With the default of 20 ms a
// WithContext that was answered later may wait for ever for a lock that is free.
const patience = time.Second

// NewLocker is how the old program connects.
func NewLocker(addr string) (rueidislock.Locker, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   patience,
	})
}

// Before does the work while it holds a lock of rueidislock. It asks again and again,
// because a WithContext can miss that the lock is free.
func Before(ctx context.Context, locker rueidislock.Locker, name string, work func(context.Context) error) error {
	for {
		held, release, err := locker.TryWithContext(ctx, name)
		if err == nil {
			defer release()
			return work(held)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
