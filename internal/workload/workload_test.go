package workload

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
)

// inMemory is this library on a server of its own.
func inMemory() Contender {
	server := memory.NewServer()
	return DLock("memory", requestsTo{server}, func(_ context.Context, o dlock.Options) (*dlock.Client, error) {
		return dlock.New(memory.New(server), &o)
	})
}

type requestsTo struct{ *memory.Server }

func (r requestsTo) Read(context.Context) (Reading, error) {
	return Reading{Requests: r.Ops()}, nil
}

// A bad lock is one as somebody might write it. Its methods are all there is.
type bad struct {
	lock, unlock func(context.Context) error
}

func (b bad) Open(context.Context, Options) (Client, error) { return b, nil }
func (b bad) Lock(string) Lock                              { return badLock(b) }
func (b bad) Close() error                                  { return nil }

type badLock bad

func (b badLock) Lock(ctx context.Context) error   { return b.lock(ctx) }
func (b badLock) Unlock(ctx context.Context) error { return b.unlock(ctx) }

func yield(context.Context) error   { runtime.Gosched(); return nil }
func succeed(context.Context) error { return nil }

func need(t *testing.T, r *Result, err error, metrics ...Metric) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics {
		if v, known := r.Figures[m]; !known || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			t.Errorf("%s is %v, %v", m, v, known)
		}
	}
}

// longer measures for ever more time until the result has all that it should: on a
// busy machine a goroutine may get no turn for a while.
func longer(whole func(*Result) bool, measure func(time.Duration) (*Result, error)) (*Result, error) {
	for d := 50 * time.Millisecond; ; d *= 2 {
		r, err := measure(d)
		if err != nil || whole(r) || d > limit {
			return r, err
		}
	}
}

// limit is for what comes soon unless it never does.
const limit = time.Minute

func TestOwnKeys(t *testing.T) {
	r, err := longer(allRan, func(d time.Duration) (*Result, error) {
		return OwnKeys(t.Context(), inMemory(), Load{Name: "own", Goroutines: 4, Time: d})
	})
	need(t, r, err, Rate, LockP50, LockP99, LockMax, Requests, ClientCPU, Allocs, AllocBytes)
	if got := r.Figures[Requests]; got < 1.9 || got > 2.1 {
		t.Errorf("%v requests for one lock and one unlock", got)
	}
	if _, known := r.Figures[HandOvers]; known || len(r.Shares) != 4 {
		t.Errorf("%+v", r)
	}
}

func TestCyclesAreCounted(t *testing.T) {
	const cycles = 1000
	r, err := OneKey(t.Context(), inMemory(), Load{Name: "one", Clients: 2, Goroutines: 4, Cycles: cycles})
	need(t, r, err, Rate, HandOvers, Violations)
	sum := int64(0)
	for _, n := range r.Shares {
		sum += n
	}
	if sum != cycles {
		t.Errorf("%d cycles, want %d", sum, cycles)
	}
}

// allRan reports whether every goroutine of a race has had the lock.
func allRan(r *Result) bool { return slices.Min(r.Shares) > 0 }

func TestOneKeyIsGuarded(t *testing.T) {
	r, err := longer(allRan, func(d time.Duration) (*Result, error) {
		return OneKey(t.Context(), inMemory(), Load{Name: "one", Clients: 4, Goroutines: 4, Time: d})
	})
	need(t, r, err, HandOvers, PassP50, PassP99, Fairness, Starved)
	if r.Figures[Violations] != 0 || r.Figures[HandOvers] == 0 || len(r.Passes) == 0 || len(r.Locks) == 0 {
		t.Errorf("%+v", r.Figures)
	}
}

func TestNoLockAtAllIsFoundOut(t *testing.T) {
	none := Contender{Name: "none", Open: bad{yield, yield}.Open}
	r, err := OneKey(t.Context(), none, Load{Name: "one", Goroutines: 16, Cycles: 100_000})
	need(t, r, err)
	if r.Figures[Violations] == 0 {
		t.Error("no violation in 100,000 cycles of 16 goroutines without a lock")
	}
}

// A room that two are in at once, and a count that is written back too late.
func TestRoom(t *testing.T) {
	var r room
	r.enter(1)
	r.leave(5)
	if since, other := r.enter(2); since != 5 || !other {
		t.Errorf("%v %v, want 5 true", since, other)
	}
	if r.enter(3); r.violations() != 1 {
		t.Errorf("%d violations of two in the room", r.violations())
	}
	r.counter.Add(-1)
	if r.violations() != 2 {
		t.Errorf("%d violations with a lost update", r.violations())
	}
}

// One goroutine fails, and others would wait for ever.
func TestFailureEndsTheRace(t *testing.T) {
	r := &race{Load: Load{Cycles: 10}}
	r.seats = []*seat{{lock: &patient{}}, {lock: badLock{yield, func() func(context.Context) error {
		calls := 0
		return func(context.Context) error {
			if calls++; calls > 1 {
				return errStop
			}
			return nil
		}
	}()}}}
	if _, err := r.run(t.Context(), Contender{Name: "failing"}); !errors.Is(err, errStop) {
		t.Fatalf("got %v, want the contender's error", err)
	}
}

// All but the first have waited before anything is measured.
func TestEverybodyWaitsToWarmUp(t *testing.T) {
	const seats = 8
	free := make(chan struct{}, 1)
	free <- struct{}{}
	var waited atomic.Int64
	lock := badLock(bad{
		lock: func(context.Context) error {
			select {
			case <-free:
			default:
				waited.Add(1)
				<-free
			}
			return nil
		},
		unlock: func(context.Context) error { free <- struct{}{}; return nil },
	})
	r := &race{room: &room{}}
	for range seats {
		r.seats = append(r.seats, &seat{lock: lock})
	}
	if err := r.warm(t.Context()); err != nil || waited.Load() != seats-1 {
		t.Errorf("%d of %d have waited: %v", waited.Load(), seats, err)
	}
}

// One goroutine of two gets the lock once, to warm up, and then never.
func TestStarvationIsFoundOut(t *testing.T) {
	never := &patient{}
	r := &race{Load: Load{Time: time.Second}, room: &room{}}
	r.seats = []*seat{{lock: badLock(bad{yield, succeed})}, {lock: never}}
	res, err := r.run(t.Context(), Contender{Name: "greedy"})
	need(t, res, err, Starved, LockMax)
	if _, known := res.Figures[Fairness]; known || res.Figures[Starved] != 1 {
		t.Errorf("%+v", res.Figures)
	}
	if res.Figures[LockMax] < 500_000 {
		t.Errorf("the longest wait is %v µs, which leaves out the one that has not ended", res.Figures[LockMax])
	}
}

// A patient lock waits for its context from the second time on.
type patient struct{ calls int }

func (p *patient) Lock(ctx context.Context) error {
	if p.calls++; p.calls == 1 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (p *patient) Unlock(context.Context) error { return nil }

var errStop = errors.New("stop")

func TestHeld(t *testing.T) {
	r, err := Held(t.Context(), inMemory(), Stock{Name: "held", Locks: 100, TTL: 6 * time.Second, Time: 3 * time.Second})
	need(t, r, err, Setup, IdleClient, IdleRequest, Goroutines, HeapEach, HeldClient)
	if r.Figures[Lost] != 0 || r.Figures[IdleRequest] == 0 {
		t.Errorf("%+v", r.Figures)
	}
}

func TestLostLocksAreFoundOut(t *testing.T) {
	lost := bad{succeed, func(context.Context) error { return errStop }}
	c := &forgetful{bad: lost}
	r, err := Held(t.Context(), Contender{Name: "lost", Open: c.open}, Stock{Locks: 10, Time: time.Millisecond})
	need(t, r, err)
	if r.Figures[Lost] != 10 {
		t.Errorf("%v lost, want 10", r.Figures[Lost])
	}
}

// forgetful is a bad client whose first lock is good, for the warm-up.
type forgetful struct {
	bad
	once sync.Once
}

func (f *forgetful) open(context.Context, Options) (Client, error) { return f, nil }

func (f *forgetful) Lock(name string) (l Lock) {
	l = f.bad.Lock(name)
	f.once.Do(func() { l = badLock(bad{succeed, succeed}) })
	return l
}

func TestWaiting(t *testing.T) {
	for _, waiters := range []int{1, 50} {
		r, err := Waiting(t.Context(), inMemory(), Queue{
			Name: "queue", Waiters: waiters, Clients: 3, Time: 50 * time.Millisecond, TTL: time.Minute,
		})
		need(t, r, err, Setup, IdleClient, IdleRequest, IdlePass, HeapEach, Unfinished)
		if r.Figures[Unfinished] != 0 {
			t.Errorf("%d waiters: %v unfinished", waiters, r.Figures[Unfinished])
		}
	}
}

// Who polls never rests, and is not waited for.
func TestWaitingOfPollers(t *testing.T) {
	server := memory.NewServer()
	poll := DLock("poll", requestsTo{server}, func(_ context.Context, o dlock.Options) (*dlock.Client, error) {
		return dlock.New(memory.New(server), &o)
	})
	open := poll.Open
	poll.Open = func(ctx context.Context, o Options) (Client, error) {
		c, err := open(ctx, o)
		return poller{c.(party)}, err
	}
	polled := func(r *Result) bool { return r.Figures[IdleRequest] > 0 }
	r, err := longer(polled, func(d time.Duration) (*Result, error) {
		return Waiting(t.Context(), poll, Queue{Name: "queue", Waiters: 20, Clients: 20, Time: d, TTL: time.Minute})
	})
	need(t, r, err, IdleRequest)
	if !polled(r) {
		t.Error("polling is not seen")
	}
}

type poller struct{ party }

func (p poller) Lock(name string) Lock { return &pollLock{handle{m: p.Mutex(name)}} }

type pollLock struct{ handle }

func (p *pollLock) Lock(ctx context.Context) (err error) {
	for {
		if p.lease, err = p.m.TryLock(ctx); !errors.Is(err, dlock.ErrHeld) {
			return err
		}
		if err := pass(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func TestEndOfContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	_, err := OneKey(ctx, inMemory(), Load{Name: "one", Goroutines: 4, Time: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_, err = Held(ctx, inMemory(), Stock{Name: "held", Locks: 1, TTL: time.Second, Time: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestHistogram(t *testing.T) {
	var h, half histogram
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(math.Exp(rand.Float64()*20)) - 1
		all = append(all, d)
		half.add(d)
		h.merge(&half)
		half = histogram{}
	}
	slices.Sort(all)
	for _, q := range []float64{0, .1, .5, .9, .99, 1} {
		want := all[min(int(q*float64(len(all))), len(all)-1)]
		got := h.quantile(q)
		if off := math.Abs(float64(got-want)) / max(float64(want), 1); off > .07 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if last := h.distribution(); last[len(last)-1].US != micros(all[len(all)-1]) {
		t.Errorf("the greatest is %v", last[len(last)-1])
	}
}

func TestBuckets(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 15, 16, 17, 1000, time.Millisecond, time.Hour, math.MaxInt64} {
		b := bucket(d)
		if b >= len(histogram{}.counts) || b < 0 {
			t.Fatalf("%v has bucket %d", d, b)
		}
		if off := math.Abs(float64(middle(b)-d)) / max(float64(d), 1); off > .07 {
			t.Errorf("%v is kept as %v", d, middle(b))
		}
	}
}
