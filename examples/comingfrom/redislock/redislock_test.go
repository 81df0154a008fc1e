package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/server"
)

func connect(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	addr := server.Start(t, server.Redis{}).Addr()
	admin := connect(t, addr)
	v := changeover.Versions{
		New:     changeover.Open(t, "redis://"+addr),
		TakeOld: func(ctx context.Context, name string) error { return admin.Del(ctx, name).Err() },
	}
	for i := range 2 {
		client, locker := changeover.Open(t, "redis://"+addr), redislock.New(connect(t, addr))
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, locker, Before, Both, After)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Without a deadline Obtain waits for as long as the lock would last.
func TestWaitWithoutDeadline(t *testing.T) {
	t.Parallel()
	locker := redislock.New(connect(t, server.Start(t, server.Redis{}).Addr()))
	if _, err := locker.Obtain(t.Context(), "held", time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}
	start := time.Now()
	_, err := locker.Obtain(t.Context(), "held", 300*time.Millisecond, retry)
	if waited := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || waited < 300*time.Millisecond {
		t.Errorf("after %v: %v", waited, err)
	}
}

// A wait that has ended is ErrHeld, and DeadlineExceeded as well.
func TestEndOfAWait(t *testing.T) {
	t.Parallel()
	client := changeover.Open(t, "redis://"+server.Start(t, server.Redis{}).Addr())
	if _, err := client.Mutex("held").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, byContext := client.Mutex("held").Lock(ctx)
	_, byOption := client.Mutex("held", dlock.WithMaxWait(100*time.Millisecond)).Lock(t.Context())
	for _, err := range []error{byContext, byOption} {
		if !errors.Is(err, dlock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

// A lock that has expired is only found out about by who asks.
func TestExpiry(t *testing.T) {
	t.Parallel()
	c := connect(t, server.Start(t, server.Redis{}).Addr())
	lock, err := redislock.New(c).Obtain(t.Context(), "short", 100*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	for c.Exists(t.Context(), "short").Val() != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := lock.Refresh(t.Context(), time.Second, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Error(err)
	}
	if err := lock.Release(t.Context()); !errors.Is(err, redislock.ErrLockNotHeld) {
		t.Error(err)
	}
}

// A panic that somebody recovers ends the hold as well: nobody extends it any more.
func TestPanicEndsTheHold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	locker := redislock.New(connect(t, server.Start(t, server.Redis{}).Addr()))
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
