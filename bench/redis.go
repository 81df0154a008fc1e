package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	syncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/dlock-go/dlock/internal/workload"
)

const (
	setFloor  = "floor SET NX + compare-and-delete"
	pipeFloor = "floor the same by rueidis, pipelined"
	listFloor = "floor BLPOP + RPUSH of a token"
	rueidisID = "rueidislock"

	redsyncOn3 = "redsync, 3 nodes"
)

func redisRivals(s *servers) []contender {
	addr := s.redis[0].Addr()
	plain := s.redisMeter(1)
	withSet := s.redisMeter(1, "set")
	return []contender{
		{
			Contender: workload.Contender{Name: setFloor, Meter: withSet, Open: openSet(addr)},
			Role:      floor, Server: "redis", Only: []string{"W1", "W2", "W5"},
			Note: "no waiting, no token; renewal in W5 is one script for 100 locks",
		},
		{
			Contender: workload.Contender{Name: pipeFloor, Meter: withSet, Open: openPipelined(addr)},
			Role:      floor, Server: "redis", Only: []string{"W1", "W2"},
			Note: "no waiting, no renewal, no token",
		},
		{
			Contender: workload.Contender{Name: listFloor, Meter: s.redisMeter(1, "blpop", "rpush"), Open: openList(addr)},
			Role:      floor, Server: "redis", Only: []string{"W3", "W4", "W6"},
			Note: "first come first served, a connection for each waiter; no lease: a crash blocks everybody for ever",
		},
		{
			Contender: workload.Contender{Name: rueidisID, Meter: plain, Open: openRueidis(addr, 0)},
			Role:      peer, Server: "redis", Best: true,
			Note: "renewal; no token; no order of waiting",
		},
		{
			Contender: workload.Contender{Name: "bsm/redislock, 100 ms", Meter: plain, Open: openBsm(addr, 100*time.Millisecond)},
			Role:      peer, Server: "redis",
			Note: "no renewal (a ticker for each lock in W5), no token, no order: who polls at the right moment wins",
		},
		{
			Contender: workload.Contender{Name: "bsm/redislock, 10 ms", Meter: plain, Open: openBsm(addr, 10*time.Millisecond)},
			Role:      peer, Server: "redis", Only: []string{"W3", "W4", "W6"},
			Note: "the same with more polls",
		},
		{
			Contender: workload.Contender{Name: "redsync, 1 node", Meter: withSet, Open: openRedsync(s.redisAddrs(1))},
			Role:      peer, Server: "redis",
			Note: "no renewal (a ticker for each lock in W5), no token, no order of waiting; polls after 50 to 250 ms",
		},
		{
			Contender: workload.Contender{Name: redsyncOn3, Meter: s.redisMeter(3, "set"), Open: openRedsync(s.redisAddrs(redisNodes))},
			Role:      peer, Server: "redis",
			Note: "the same, and outlives the loss of one node",
		},
	}
}

const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// renewAll extends every key that still has the owner.
const renewAll = `for i, key in ipairs(KEYS) do
	if redis.call('GET', key) == ARGV[1] then redis.call('PEXPIRE', key, ARGV[2]) end
end`

var errGone = errors.New("the lock had another owner")

// openSet is the simplest lock on go-redis.
func openSet(addr string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		const owner = "owner"
		c := redis.NewClient(&redis.Options{Addr: addr})
		drop := redis.NewScript(compareAndDelete)
		keep := newKeeper(c, owner, o)
		return client{func(name string) workload.Lock {
			return handle{
				func(ctx context.Context) error {
					err := c.SetArgs(ctx, name, owner, redis.SetArgs{Mode: "NX", TTL: o.TTL}).Err()
					keep.add(name)
					return err
				},
				func(ctx context.Context) error { return one(drop.Run(ctx, c, []string{name}, owner).Int64()) },
			}
		}, func() error { keep.stop(); return c.Close() }}, nil
	}
}

func one(n int64, err error) error {
	if err == nil && n != 1 {
		return errGone
	}
	return err
}

// A keeper renews keys at a third of their TTL, a hundred in one script.
type keeper struct {
	mu   sync.Mutex
	keys []string
	stop func()
}

func newKeeper(c *redis.Client, owner string, o workload.Options) *keeper {
	k := &keeper{stop: func() {}}
	if !o.Keep {
		return k
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	k.stop = func() { cancel(); <-gone }
	go func() {
		defer close(gone)
		every(ctx, o.TTL/3, func() { k.renew(ctx, c, owner, o.TTL) })
	}()
	return k
}

func (k *keeper) add(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = append(k.keys, key)
}

func (k *keeper) renew(ctx context.Context, c *redis.Client, owner string, ttl time.Duration) {
	k.mu.Lock()
	keys := k.keys
	k.mu.Unlock()
	const batch = 100
	script, pipe := redis.NewScript(renewAll), c.Pipeline()
	script.Load(ctx, c)
	for len(keys) > 0 {
		n := min(batch, len(keys))
		script.EvalSha(ctx, pipe, keys[:n], owner, ttl.Milliseconds())
		keys = keys[n:]
	}
	_, _ = pipe.Exec(ctx) // a lock that is lost shows when it is unlocked
}

func every(ctx context.Context, d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

func openPipelined(addr string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			return nil, err
		}
		drop := rueidis.NewLuaScript(compareAndDelete)
		return client{func(name string) workload.Lock {
			return handle{
				func(ctx context.Context) error {
					return c.Do(ctx, c.B().Set().Key(name).Value("owner").Nx().Px(o.TTL).Build()).Error()
				},
				func(ctx context.Context) error {
					return one(drop.Exec(ctx, c, []string{name}, []string{"owner"}).AsInt64())
				},
			}
		}, func() error { c.Close(); return nil }}, nil
	}
}

// openList passes a token round in a list, which the first handle puts there.
func openList(addr string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(ctx context.Context, _ workload.Options) (workload.Client, error) {
		c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1024})
		return client{func(name string) workload.Lock {
			if c.SetArgs(ctx, name+"/made", "", redis.SetArgs{Mode: "NX"}).Err() == nil {
				if err := c.RPush(ctx, name, "token").Err(); err != nil {
					return broken(err)
				}
			}
			return handle{
				func(ctx context.Context) error { return c.BLPop(ctx, time.Minute, name).Err() },
				func(ctx context.Context) error { return c.RPush(ctx, name, "token").Err() },
			}
		}, c.Close}, nil
	}
}

// openRueidis is set up as its README says for one Redis of this version. An answer
// that takes longer than patience counts as none; 0 is the library's 20 ms.
func openRueidis(addr string, patience time.Duration) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
			KeyMajority:    1,
			NoLoopTracking: true,
			KeyValidity:    o.TTL,
			TryNextAfter:   patience,
		})
		if err != nil {
			return nil, err
		}
		return client{func(name string) workload.Lock {
			var held context.Context
			var release context.CancelFunc
			return handle{
				func(ctx context.Context) (err error) {
					held, release, err = locker.WithContext(ctx, name)
					return err
				},
				func(context.Context) error {
					if held == nil {
						return errGone
					}
					lost := held.Err()
					release()
					return lost
				},
			}
		}, func() error { locker.Close(); return nil }}, nil
	}
}

func openBsm(addr string, poll time.Duration) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		c := redis.NewClient(&redis.Options{Addr: addr})
		locker := redislock.New(c)
		retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(poll)}
		return client{func(name string) workload.Lock {
			var held *redislock.Lock
			stop := func() {}
			return handle{
				func(ctx context.Context) (err error) {
					if held, err = locker.Obtain(ctx, name, o.TTL, retry); err != nil {
						return err
					}
					stop = renewing(o, func(ctx context.Context) { _ = held.Refresh(ctx, o.TTL, nil) })
					return nil
				},
				func(ctx context.Context) error { stop(); return held.Release(ctx) },
			}
		}, c.Close}, nil
	}
}

// renewing is what users of a library without renewal do: a ticker for each
// lock. It does nothing for locks that are held for less than their TTL.
func renewing(o workload.Options, renew func(context.Context)) (stop func()) {
	if !o.Keep {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go every(ctx, o.TTL/3, func() { renew(ctx) })
	return cancel
}

func openRedsync(addrs []string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(_ context.Context, o workload.Options) (workload.Client, error) {
		var clients []*redis.Client
		var pools []syncredis.Pool
		for _, addr := range addrs {
			c := redis.NewClient(&redis.Options{Addr: addr})
			clients, pools = append(clients, c), append(pools, syncpool.NewPool(c))
		}
		rs := redsync.New(pools...)
		return client{func(name string) workload.Lock {
			const forEver = 1 << 30
			m := rs.NewMutex(name, redsync.WithExpiry(o.TTL), redsync.WithTries(forEver))
			stop := func() {}
			return handle{
				func(ctx context.Context) error {
					err := m.LockContext(ctx)
					if err == nil {
						stop = renewing(o, func(ctx context.Context) { _, _ = m.ExtendContext(ctx) })
					}
					return err
				},
				func(ctx context.Context) error {
					stop()
					ok, err := m.UnlockContext(ctx)
					if err == nil && !ok {
						err = errGone
					}
					return err
				},
			}
		}, func() error {
			var errs []error
			for _, c := range clients {
				errs = append(errs, c.Close())
			}
			return errors.Join(errs...)
		}}, nil
	}
}
