package redlock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// BenchmarkLockUnlock takes free locks on three masters and gives them back, one
// name for each goroutine, beside what costs least with the bare client.
func BenchmarkLockUnlock(b *testing.B) {
	masters := startMasters(b, 3)
	vouchFor(b, masters...)
	c := openURL(b, "redlock://"+addresses(masters), &dlock.Options{TTL: 10 * time.Second})
	lock := func(ctx context.Context, name string) error { return dlock.Do(ctx, c.Mutex(name), nothing) }
	for _, goroutines := range []int{1, 64} {
		for _, kind := range []struct {
			name string
			run  func(ctx context.Context, name string) error
		}{{"floor", floor(b, masters)}, {"dlock", lock}} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", kind.name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				var all sync.WaitGroup
				for g := range goroutines {
					all.Go(func() {
						name := fmt.Sprint(kind.name, g)
						for i := g; i < b.N; i += goroutines {
							if err := kind.run(context.Background(), name); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}

// floor sets a key on all masters at once, and deletes it with a look whose it is:
// what redsync does.
func floor(b *testing.B, masters []*server.Server) func(ctx context.Context, name string) error {
	del := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	var clients []*redis.Client
	for _, m := range masters {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	}
	b.Cleanup(func() {
		for _, c := range clients {
			_ = c.Close()
		}
	})
	onAll := func(do func(c *redis.Client) error) error {
		errs := make(chan error, len(clients))
		for _, c := range clients {
			go func() { errs <- do(c) }()
		}
		var first error
		for range clients {
			first = cmp.Or(first, <-errs)
		}
		return first
	}
	return func(ctx context.Context, name string) error {
		set := func(c *redis.Client) error {
			return c.SetArgs(ctx, name, "owner", redis.SetArgs{Mode: "NX", TTL: 10 * time.Second}).Err()
		}
		if err := onAll(set); err != nil {
			return err
		}
		return onAll(func(c *redis.Client) error { return del.Run(ctx, c, []string{name}, "owner").Err() })
	}
}

func nothing(context.Context, *dlock.Lease) error { return nil }
