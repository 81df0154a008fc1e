package redsync

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	_ "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/server"
)

func connect(t *testing.T, addr string) (*redsync.Redsync, *redis.Client) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return redsync.New(goredis.NewPool(c)), c
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	addr := server.Start(t, server.Redis{}).Addr()
	_, admin := connect(t, addr)
	v := changeover.Versions{
		New:     changeover.Open(t, "redis://"+addr),
		TakeOld: func(ctx context.Context, name string) error { return admin.Del(ctx, name).Err() },
	}
	for i := range 2 {
		client := changeover.Open(t, "redis://"+addr)
		rs, _ := connect(t, addr)
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, rs, Before, Both, After)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A wait whose context ends is ErrFailed, as is one that has failed otherwise.
func TestContextOfAWait(t *testing.T) {
	t.Parallel()
	rs, _ := connect(t, server.Start(t, server.Redis{}).Addr())
	if err := rs.NewMutex("held").Lock(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := rs.NewMutex("held").LockContext(ctx)
	if !errors.Is(err, redsync.ErrFailed) || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// By default a lock that stays taken is given up after 32 tries.
func TestTries(t *testing.T) {
	t.Parallel()
	rs, _ := connect(t, server.Start(t, server.Redis{}).Addr())
	if err := rs.NewMutex("held", redsync.WithExpiry(time.Hour)).Lock(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err := rs.NewMutex("held").Lock()
	var taken *redsync.ErrTaken
	if !errors.As(err, &taken) {
		t.Error(err)
	}
	t.Logf("gave up after %v", time.Since(start))
}

// A lock that has expired and was not extended is gone, and its holder learns of it at the
// next Extend, which calls it taken, or at Unlock.
func TestExpiry(t *testing.T) {
	t.Parallel()
	rs, c := connect(t, server.Start(t, server.Redis{}).Addr())
	mutex := rs.NewMutex("short", redsync.WithExpiry(100*time.Millisecond))
	if err := mutex.Lock(); err != nil {
		t.Fatal(err)
	}
	for c.Exists(t.Context(), "short").Val() != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	var taken *redsync.ErrTaken
	if ok, err := mutex.Extend(); ok || !errors.As(err, &taken) {
		t.Error(ok, err)
	}
	if ok, err := mutex.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		t.Error(ok, err)
	}
	if err := rs.NewMutex("short").Lock(); err != nil {
		t.Fatal(err)
	}
	if ok, err := mutex.Unlock(); ok || !errors.As(err, &taken) {
		t.Errorf("while another has it: %t %v", ok, err)
	}
}

// A panic that somebody recovers ends the hold as well: nobody extends it any more.
func TestPanicEndsTheHold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	locker, _ := connect(t, server.Start(t, server.Redis{}).Addr())
	func() {
		defer func() { _ = recover() }()
		_ = Before(ctx, locker, "panics", func(context.Context) error { panic("work") })
	}()
	for ctx.Err() == nil {
		if Before(ctx, locker, "panics", func(context.Context) error { return nil }) == nil {
			return
		}
	}
	t.Error("the hold goes on for a minute after the panic")
}
