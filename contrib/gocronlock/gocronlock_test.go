package gocronlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/contrib/gocronlock"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newClient(t testing.TB, b *memory.Backend) *dlock.Client {
	t.Helper()
	client, err := dlock.New(b, nil)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

// A clock is ahead of the others.
type clock struct {
	clockwork.Clock
	ahead time.Duration
}

func (c clock) Now() time.Time { return c.Clock.Now().Add(c.ahead) }

// skips are the errors of gocron.AfterLockError.
type skips struct {
	mu   sync.Mutex
	errs []error
}

func (s *skips) listen() gocron.JobOption {
	return gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
	}))
}

// take returns the errors since the last call.
func (s *skips) take() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := s.errs
	s.errs = nil
	return errs
}

// everyMinute starts a scheduler whose clock is ahead, with a job for the beginning of
// each minute.
func everyMinute(t testing.TB, l gocron.Locker, ahead time.Duration, job any, o ...gocron.JobOption) {
	t.Helper()
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(l),
		gocron.WithClock(clock{clockwork.NewRealClock(), ahead}), gocron.WithLocation(time.UTC))
	must(t, err)
	_, err = s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(job), append(o, gocron.WithName("job"))...)
	must(t, err)
	s.Start()
	t.Cleanup(func() { _ = s.Shutdown() })
}

// Schedulers whose clocks are four seconds apart run a short job once a minute. Without a
// minimum hold each of them would.
func TestShortJobRunsOnceWhereClocksDiffer(t *testing.T) {
	for name, test := range map[string]struct {
		o    []dlock.Option
		want int
	}{
		"Default":   {nil, 10},
		"NoMinHold": {[]dlock.Option{dlock.WithMinHold(1)}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memory.NewServer()
				var mu sync.Mutex
				runs := 0
				var skipped skips
				for _, ahead := range []time.Duration{0, 2 * time.Second, 4 * time.Second} {
					locker := gocronlock.NewLocker(newClient(t, memory.New(server)), test.o...)
					everyMinute(t, locker, ahead, func() { mu.Lock(); runs++; mu.Unlock() }, skipped.listen())
				}
				time.Sleep(10*time.Minute + 30*time.Second)
				errs := skipped.take()
				for _, err := range errs {
					if !errors.Is(err, dlock.ErrHeld) {
						t.Error(err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if runs != test.want || runs+len(errs) != 30 {
					t.Errorf("%d runs and %d skipped, want %d of 30", runs, len(errs), test.want)
				}
			})
		})
	}
}

// A job that takes longer than its interval runs on one machine at a time.
func TestLongJobDoesNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		var mu sync.Mutex
		running, runs := 0, 0
		job := func() {
			mu.Lock()
			running++
			runs++
			if running > 1 {
				t.Errorf("%d run at once", running)
			}
			mu.Unlock()
			time.Sleep(150 * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
		}
		for range 3 {
			everyMinute(t, gocronlock.NewLocker(newClient(t, memory.New(server))), 0, job)
		}
		time.Sleep(29*time.Minute + 30*time.Second) // the last run began at 27 minutes
		time.Sleep(5 * time.Second)
		mu.Lock()
		if runs < 9 || runs > 10 {
			t.Errorf("%d runs in half an hour, want one every three minutes", runs)
		}
		mu.Unlock()
		awaitEnd(t, &mu, &running)
	})
}

// awaitEnd waits until no job runs: Shutdown waits for them without letting time pass.
func awaitEnd(t testing.TB, mu *sync.Mutex, running *int) {
	for range 1000 {
		mu.Lock()
		n := *running
		mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	t.Error("a job does not end")
}

// A job whose lock is lost has its context ended. Another machine may run it then; the
// same process does not before the job has returned.
func TestLostLockEndsTheContextOfTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		locker := gocronlock.NewLocker(newClient(t, memory.New(server)))
		ended, returned := make(chan error), make(chan struct{})
		var skipped skips
		everyMinute(t, locker, 0, func(ctx context.Context) {
			ctx = locker.Lease("job").Context(ctx)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			<-returned
		}, skipped.listen())
		time.Sleep(90 * time.Second)
		server.Evict("job")
		if err := <-ended; !errors.Is(err, dlock.ErrLost) {
			t.Errorf("the job's context ended with %v", err)
		}
		other, err := gocronlock.NewLocker(newClient(t, memory.New(server))).Lock(t.Context(), "job")
		must(t, err)
		must(t, other.Unlock(t.Context()))

		time.Sleep(3 * time.Minute)
		errs := skipped.take()
		if len(errs) != 3 {
			t.Errorf("%d runs were skipped while the old one goes on: %v", len(errs), errs)
		}
		for _, err := range errs {
			if !errors.Is(err, dlock.ErrHeld) {
				t.Error(err)
			}
		}
		close(returned)
		time.Sleep(time.Minute)
		if err := locker.Lease("job").Err(); err != nil {
			t.Errorf("the next run: %v", err)
		}
		server.Evict("job")
		<-ended
	})
}

// Where the server does not answer, a run is skipped, soon, and with the reason.
func TestRunIsSkippedWithoutTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		var mu sync.Mutex
		runs := 0
		var skipped skips
		everyMinute(t, gocronlock.NewLocker(newClient(t, memory.New(server))), 0, func() { mu.Lock(); runs++; mu.Unlock() }, skipped.listen())
		server.Freeze()
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 4*time.Second)))
		errs := skipped.take()
		if len(errs) != 1 || !errors.Is(errs[0], dlock.ErrUnavailable) {
			t.Errorf("skipped with %v, want one dlock.ErrUnavailable", errs)
		}
		server.Thaw()
		time.Sleep(30 * time.Second)
		mu.Lock()
		if runs != 0 {
			t.Errorf("%d runs while the server was away, or late", runs)
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if runs != 1 {
			t.Errorf("%d runs after the server has come back, want 1", runs)
		}
	})
}

// A job that panics gives its lock back.
func TestPanicOfTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := gocronlock.NewLocker(newClient(t, memory.New(memory.NewServer())))
		panicked := make(chan any, 10)
		everyMinute(t, locker, 0, func() { panic("the job's") }, gocron.WithEventListeners(
			gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, _ string, p any) { panicked <- p })))
		for range 3 {
			if p := <-panicked; p != "the job's" {
				t.Error(p)
			}
		}
		synctest.Wait()
		if locker.Lease("job") != nil {
			t.Error("the lock is kept")
		}
	})
}

func TestUnlockTwice(t *testing.T) {
	locker := gocronlock.NewLocker(newClient(t, memory.New(memory.NewServer())), dlock.WithMinHold(1))
	first, err := locker.Lock(t.Context(), "job")
	must(t, err)
	must(t, first.Unlock(t.Context()))
	second, err := locker.Lock(t.Context(), "job")
	must(t, err)
	if err := first.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnlocked) {
		t.Errorf("a second Unlock: %v", err)
	}
	must(t, second.Unlock(t.Context()))
}
