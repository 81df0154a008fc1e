package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestPushedByANeighbour has a user who may not touch a lock's keys have the server push
// frames into the connections of a client, by redirecting to them what it is told of keys
// of its own. Replies stay with the requests that they answer.
func TestPushedByANeighbour(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	c := openClient(t, s, nil)
	admin := plainClient(t, s)
	must[any](t)(admin.Do(ctx, "acl", "setuser", "next", "on", ">door", "resetkeys", "~other*", "resetchannels", "+@all", "-@dangerous", "-@scripting").Result())
	must[any](t)(nil, must[*dlock.Lease](t)(c.Mutex("warm").Lock(ctx)).Unlock(ctx))
	redirected := 0
	for i := range 32 { // connections of a client have numbers that can be guessed
		evil := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "next", Password: "door", DisableIdentity: true, PoolSize: 1})
		t.Cleanup(func() { _ = evil.Close() })
		err := evil.Do(ctx, "client", "tracking", "on", "redirect", i, "bcast", "prefix", fmt.Sprintf("other%d:", i)).Err()
		if err == nil {
			redirected++
		}
	}
	if redirected == 0 {
		t.Fatal("no connection can be reached")
	}
	writer := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "next", Password: "door", DisableIdentity: true})
	t.Cleanup(func() { _ = writer.Close() })
	writing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; writing.Err() == nil; n++ {
			pipe := writer.Pipeline()
			for i := range 32 {
				pipe.Set(writing, fmt.Sprintf("other%d:%s", i, strings.Repeat("x", n%50)), n, time.Minute)
			}
			_, _ = pipe.Exec(writing)
		}
	}()
	last := uint64(0)
	for i := range 300 {
		m := c.Mutex(fmt.Sprint("m", i%3))
		lease := must[*dlock.Lease](t)(m.Lock(ctx))
		if i%3 == 0 {
			if lease.Token() <= last {
				t.Fatalf("token %d after %d", lease.Token(), last)
			}
			last = lease.Token()
		}
		if owner := admin.HGet(ctx, mainKey(m.Name()), "o").Val(); owner == "" {
			t.Fatal("the server knows nothing of the hold")
		}
		must[any](t)(nil, lease.Unlock(ctx))
	}
	stop()
	<-done
}
