// Package redisson is a Go program that shares a lock with Java programs on Redisson.
package redisson

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lease is Redisson's lockWatchdogTimeout.
const lease = 30 * time.Second

// An RLock is a hash with one field, its owner, and a TTL. It is freed with a message to
// those that wait.
var (
	take = redis.NewScript(`
if redis.call('exists', KEYS[1]) > redis.call('hexists', KEYS[1], ARGV[1]) then return 0 end
redis.call('hset', KEYS[1], ARGV[1], 1)
return redis.call('pexpire', KEYS[1], ARGV[2])`)

	renew = redis.NewScript(`
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[2])`)

	free = redis.NewScript(`
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('publish', KEYS[2], '0')
return redis.call('del', KEYS[1])`)
)

var errLost = errors.New("the RLock is lost")

// UnderRLock does the work while it holds the RLock of that name. One process at a time
// should wait in it, because it polls. If the RLock was lost it returns an error, also if
// the work returned nil.
func UnderRLock(ctx context.Context, rdb *redis.Client, name string, work func(context.Context) error) error {
	owner := rand.Text() + ":1"
	run := func(ctx context.Context, s *redis.Script) (bool, error) {
		return s.Run(ctx, rdb, []string{name, channel(name)}, owner, lease.Milliseconds()).Bool()
	}
	unlocked := sync.OnceValue(func() error {
		held, err := run(context.WithoutCancel(ctx), free)
		if !held {
			return errors.Join(errLost, err)
		}
		return nil
	})
	defer unlocked() // also if work panics, or the answer to take is lost
	for {
		taken, err := run(ctx, take)
		if err != nil {
			return err
		}
		if taken {
			break
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	go func() {
		for sleep(ctx, lease/3) == nil {
			if held, err := run(ctx, renew); !held {
				lost(errors.Join(errLost, err))
			}
		}
	}()
	return errors.Join(work(ctx), unlocked())
}

func channel(name string) string {
	if strings.Contains(name, "{") {
		return "redisson_lock__channel:" + name
	}
	return "redisson_lock__channel:{" + name + "}"
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
