package rueidislock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

func open(t *testing.T, addr string) *dlock.Client {
	t.Helper()
	client, err := NewClient(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	return client
}

func connect(t *testing.T, addr string) rueidislock.Locker {
	t.Helper()
	locker, err := NewLocker(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return locker
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	addr := server.Start(t, server.Redis{}).Addr()
	admin := connect(t, addr).Client()
	v := changeover.Versions{
		New: open(t, addr),
		TakeOld: func(ctx context.Context, name string) error {
			return admin.Do(ctx, admin.B().Del().Key("rueidislock:0:"+name).Build()).Error()
		},
	}
	for i := range 2 {
		client, locker := open(t, addr), connect(t, addr)
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, locker, Before, Both, After)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// With the default of TryNextAfter a lock that is free is not had where answers take longer,
// and nobody wakes the caller; with patience it is.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	proxy, err := faultnet.Listen(server.Start(t, server.Redis{}).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	hasty, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{proxy.Addr()}},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hasty.Close)
	patient := connect(t, proxy.Addr())
	proxy.Delay(faultnet.ToClient, 50*time.Millisecond, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, _, err := hasty.WithContext(ctx, "free"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with 20 ms: %v", err)
	}
	if _, release, err := patient.WithContext(t.Context(), "free"); err != nil {
		t.Errorf("with %v: %v", patience, err)
	} else {
		release()
	}
}

// The context that bounds the wait bounds the hold as well.
func TestDeadlineOfTheWait(t *testing.T) {
	t.Parallel()
	locker := connect(t, server.Start(t, server.Redis{}).Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	held, release, err := locker.WithContext(ctx, "deadline")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	<-held.Done()
	again, releaseAgain, err := locker.TryWithContext(t.Context(), "deadline")
	for ; errors.Is(err, rueidislock.ErrNotLocked); again, releaseAgain, err = locker.TryWithContext(t.Context(), "deadline") {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || again.Err() != nil {
		t.Fatal(err)
	}
	releaseAgain()
}

// The context says that it was cancelled, whether the lock was lost or given back.
func TestCauseOfALoss(t *testing.T) {
	t.Parallel()
	locker := connect(t, server.Start(t, server.Redis{}).Addr())
	held, release, err := locker.WithContext(t.Context(), "lost")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	c := locker.Client()
	if err := c.Do(t.Context(), c.B().Del().Key("rueidislock:0:lost").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	<-held.Done()
	if cause := context.Cause(held); cause != context.Canceled {
		t.Error(cause)
	}
}

// With FallbackSETPX a lock begins by the server's clock, and is extended by the client's.
func TestClockOfADeadline(t *testing.T) {
	t.Parallel()
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{server.Start(t, server.Redis{}).Addr()}},
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   patience,
		ExtendInterval: 10 * time.Millisecond,
		FallbackSETPX:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	_, release, err := locker.WithContext(t.Context(), "clock")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		c := locker.Client()
		stats, err := c.Do(ctx, c.B().Info().Section("commandstats").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stats, "cmdstat_pexpireat:") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// WithContext waits where nobody answers, and does not say why.
func TestServerAway(t *testing.T) {
	t.Parallel()
	redis := server.Start(t, server.Redis{})
	locker := connect(t, redis.Addr())
	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, _, err := locker.WithContext(ctx, "away"); err != context.DeadlineExceeded {
		t.Error(err)
	}
}
