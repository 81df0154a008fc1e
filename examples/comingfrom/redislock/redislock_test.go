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

// A wait with LimitRetry ends as a call without waiting does.
func TestLimitedWait(t *testing.T) {
	t.Parallel()
	locker := redislock.New(connect(t, server.Start(t, server.Redis{}).Addr()))
	if _, err := locker.Obtain(t.Context(), "held", time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	three := redislock.LimitRetry(redislock.LinearBackoff(time.Millisecond), 3)
	if _, err := locker.Obtain(t.Context(), "held", time.Hour, &redislock.Options{RetryStrategy: three}); !errors.Is(err, redislock.ErrNotObtained) {
		t.Error(err)
	}
}

// Whoever has the token of a lock obtains it again, and the first Release frees it.
func TestSameToken(t *testing.T) {
	t.Parallel()
	locker := redislock.New(connect(t, server.Start(t, server.Redis{}).Addr()))
	mine := &redislock.Options{Token: "mine"}
	first, err := locker.Obtain(t.Context(), "again", time.Hour, mine)
	if err != nil {
		t.Fatal(err)
	}
	second, err := locker.Obtain(t.Context(), "again", time.Hour, mine)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := first.Release(t.Context()); !errors.Is(err, redislock.ErrLockNotHeld) {
		t.Error(err)
	}
}

// A job runs once in some time by a lock that is left to expire: in each version, and not
// again when the next is deployed.
func TestLeftToExpire(t *testing.T) {
	t.Parallel()
	addr := server.Start(t, server.Redis{}).Addr()
	locker, client := redislock.New(connect(t, addr)), changeover.Open(t, "redis://"+addr)
	before := func() error {
		_, err := locker.Obtain(t.Context(), "job", time.Hour, nil)
		return err
	}
	after := func(work func() error) error {
		mutex := client.Mutex("job", dlock.WithMinHold(time.Hour))
		return dlock.TryDo(t.Context(), mutex, func(context.Context, *dlock.Lease) error { return work() })
	}
	nothing := func() error { return nil }
	both := func() error { return after(before) }

	if err := both(); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{"before": before(), "both": both(), "after": after(nothing)} {
		if !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("%s runs once more: %v", name, err)
		}
	}
}
