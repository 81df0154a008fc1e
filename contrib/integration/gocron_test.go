package integration

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/gocronlock"
)

// oddName is the name of a job that no file and no key would like to have.
const oddName = "../reports/*?[x] {y}\tpäckchen%2F\x00:42"

// A clock is ahead of the others.
type clock struct {
	clockwork.Clock
	ahead time.Duration
}

func (c clock) Now() time.Time { return c.Clock.Now().Add(c.ahead) }

// A record is what schedulers have done.
type record struct {
	mu    sync.Mutex
	began []time.Time
	skips []error
}

func (r *record) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = append(r.began, time.Now())
}

func (r *record) skip(_ uuid.UUID, _ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skips = append(r.skips, err)
}

func (r *record) runs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.began)
}

// skipped returns how many runs were skipped because of kind.
func (r *record) skipped(kind error) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.skips {
		if errors.Is(err, kind) {
			n++
		}
	}
	return n
}

// schedule starts a scheduler with one job.
func (r *record) schedule(t testing.TB, l gocron.Locker, ahead time.Duration, when gocron.JobDefinition, job any) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(l), gocron.WithClock(clock{clockwork.NewRealClock(), ahead}))
	must(t, err)
	_, err = s.NewJob(when, gocron.NewTask(job), gocron.WithName(oddName), gocron.WithEventListeners(gocron.AfterLockError(r.skip)))
	must(t, err)
	s.Start()
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

// A stopwatch notes when locks were asked for and when they were granted.
type stopwatch struct {
	gocron.Locker
	mu     *sync.Mutex
	grants *[]grant
}

type grant struct{ asked, granted time.Time }

func (w stopwatch) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	asked := time.Now()
	lock, err := w.Locker.Lock(ctx, key)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		*w.grants = append(*w.grants, grant{asked, time.Now()})
	}
	return lock, err
}

// Schedulers of three machines whose clocks differ run a job every second. No run begins
// within the minimum hold of the one before.
func TestGocronRunsOnceWhereClocksDiffer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		const minHold = 600 * time.Millisecond
		var r record
		var mu sync.Mutex
		var grants []grant
		for _, ahead := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond} {
			locker := gocronlock.NewLocker(p.client(t), dlock.WithMinHold(minHold))
			r.schedule(t, stopwatch{locker, &mu, &grants}, ahead, gocron.CronJob("* * * * * *", true), r.begin)
		}
		await(t, "four runs, and as many that are skipped", func() bool {
			return r.runs() >= 4 && r.skipped(dlock.ErrHeld) >= 4
		})
		mu.Lock()
		defer mu.Unlock()
		slices.SortFunc(grants, func(a, b grant) int { return a.granted.Compare(b.granted) })
		for i, g := range grants[1:] {
			if apart := g.granted.Sub(grants[i].asked); apart < minHold-time.Millisecond { // the server counts in ms
				t.Errorf("a run began %v after the one before it", apart)
			}
		}
	})
}

// While the server is away no run happens, each is skipped with the reason, and
// the next after its return happens.
func TestGocronSkipsRunsWithoutTheServer(t *testing.T) {
	t.Parallel()
	redis, p := startRedis(t)
	var r record
	locker := gocronlock.NewLocker(p.client(t), dlock.WithMinHold(time.Millisecond))
	r.schedule(t, locker, 0, gocron.DurationJob(200*time.Millisecond), r.begin)
	await(t, "a run", func() bool { return r.runs() > 0 })

	must(t, redis.Stop())
	await(t, "a run that is skipped", func() bool { return r.skipped(dlock.ErrUnavailable) > 0 })
	before := r.runs()
	skipped := r.skipped(dlock.ErrUnavailable)
	await(t, "one more", func() bool { return r.skipped(dlock.ErrUnavailable) > skipped })
	if n := r.runs(); n != before {
		t.Errorf("%d runs without the server", n-before)
	}
	must(t, redis.Restart(false))
	await(t, "a run", func() bool { return r.runs() > before })
}

// A job learns from its context that its lock was taken away. Its end leaves alone
// whoever has the lock then.
func TestGocronJobThatLosesItsLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		var r record
		locker := gocronlock.NewLocker(p.client(t), dlock.WithMinHold(time.Millisecond))
		running, ended, proceed, returned := make(chan struct{}), make(chan error), make(chan struct{}), make(chan struct{})
		r.schedule(t, locker, 0, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), func(ctx context.Context) {
			defer close(returned)
			ctx = locker.Lease(oddName).Context(ctx)
			close(running)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			<-proceed
		})
		receive(t, "the job runs", running)
		p.takeAway(t, oddName)
		if err := receive(t, "the job's context ends", ended); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("the job's context ended with %v", err)
		}
		other, err := gocronlock.NewLocker(p.client(t)).Lock(t.Context(), oddName)
		must(t, err)
		close(proceed)
		receive(t, "the job returns", returned)
		await(t, "Unlock", func() bool { return locker.Lease(oddName) == nil })
		if _, err := locker.Lock(t.Context(), oddName); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("the lock is not the other's any more: %v", err)
		}
		must(t, other.Unlock(t.Context()))
	})
}

// A job that a shutdown ends gives its lock back, although gocron unlocks with a context
// that has ended.
func TestGocronShutdownFreesTheLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		var r record
		locker := gocronlock.NewLocker(p.client(t), dlock.WithMinHold(time.Millisecond))
		running := make(chan struct{})
		s := r.schedule(t, locker, 0, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), func(ctx context.Context) {
			close(running)
			<-ctx.Done()
		})
		receive(t, "the job runs", running)
		other := gocronlock.NewLocker(p.client(t))
		if _, err := other.Lock(t.Context(), oddName); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("while the job runs: %v", err)
		}
		must(t, s.Shutdown())
		await(t, "the lock is free", func() bool {
			_, err := other.Lock(t.Context(), oddName)
			return err == nil
		})
	})
}

// A job that panics gives its lock back.
func TestGocronJobThatPanics(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		locker := gocronlock.NewLocker(p.client(t), dlock.WithMinHold(time.Millisecond))
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		must(t, err)
		defer s.Shutdown()
		panicked := make(chan any, 1)
		_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() { panic(oddName) }),
			gocron.WithName(oddName), gocron.WithEventListeners(
				gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, _ string, p any) { panicked <- p })))
		must(t, err)
		s.Start()
		if p := receive(t, "the panic", panicked); p != oddName {
			t.Errorf("the job panicked with %v", p)
		}
		other := gocronlock.NewLocker(p.client(t))
		await(t, "the lock is free", func() bool {
			_, err := other.Lock(t.Context(), oddName)
			return err == nil
		})
	})
}

// Of several electors one leads, and another when it ends or its lock is taken away.
func TestGocronElector(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		var electors []*gocronlock.Elector
		for range 3 {
			electors = append(electors, gocronlock.NewElector(p.client(t), oddName))
		}
		leader := awaitLeader(t, electors)

		p.takeAway(t, oddName)
		receive(t, "the leader notices", leader.Lease().Done())
		awaitLeader(t, electors)

		for len(electors) > 0 {
			leader := awaitLeader(t, electors)
			must(t, leader.Close(t.Context()))
			if err := leader.IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrNotLeader) {
				t.Errorf("after Close: %v", err)
			}
			electors = slices.DeleteFunc(electors, func(e *gocronlock.Elector) bool { return e == leader })
		}
	})
}

// awaitLeader returns the one that leads.
func awaitLeader(t testing.TB, electors []*gocronlock.Elector) (leader *gocronlock.Elector) {
	t.Helper()
	await(t, "somebody leads", func() bool {
		for _, e := range electors {
			if e.IsLeader(t.Context()) == nil {
				leader = e
			}
		}
		return leader != nil
	})
	for _, e := range electors {
		if e != leader && e.IsLeader(t.Context()) == nil && leader.IsLeader(t.Context()) == nil {
			t.Error("two lead")
		}
	}
	return leader
}

// A leader that the server does not answer leads no longer than its lease, and says why.
func TestGocronElectorWithoutTheServer(t *testing.T) {
	t.Parallel()
	redis, p := startRedis(t)
	e := gocronlock.NewElector(p.client(t), "leader")
	defer e.Close(t.Context())
	awaitLeader(t, []*gocronlock.Elector{e})
	must(t, redis.Stop())
	await(t, "it leads no longer, because of the server", func() bool {
		return errors.Is(e.IsLeader(t.Context()), dlock.ErrUnavailable)
	})
	must(t, redis.Restart(false))
	awaitLeader(t, []*gocronlock.Elector{e})
}
