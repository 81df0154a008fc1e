package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Load is how OwnKeys and OneKey lock.
type Load struct {
	// Name is that of the lock. Names of several begin with it.
	Name string

	// Clients share the goroutines evenly. Zero means one.
	Clients int

	// Goroutines is how many lock and unlock all the time. Zero means one.
	Goroutines int

	// Time is for how long they do. Calls of Lock under way are then waited for.
	Time time.Duration

	// Cycles, if not zero, is after how many of all goroutines together they
	// end instead.
	Cycles int64

	// TTL is the lease of the locks. Zero means 30 s.
	TTL time.Duration
}

func (l Load) withDefaults() Load {
	l.Clients = max(l.Clients, 1)
	l.Goroutines = max(l.Goroutines, 1)
	if l.TTL == 0 {
		l.TTL = 30 * time.Second
	}
	return l
}

// OwnKeys measures locks that nobody else wants: each goroutine has its own.
func OwnKeys(ctx context.Context, c Contender, l Load) (*Result, error) {
	l = l.withDefaults()
	return l.run(ctx, c, func(i int) string { return fmt.Sprint(l.Name, "/", i) }, nil)
}

// OneKey measures a lock that everybody wants all the time. What it guards is a
// counter, which shows whether it does.
func OneKey(ctx context.Context, c Contender, l Load) (*Result, error) {
	l = l.withDefaults()
	return l.run(ctx, c, func(int) string { return l.Name }, &room{})
}

// patience is how long waits may last before a race and after its end.
const patience = time.Second

// A race is goroutines that lock and unlock until it is over.
type race struct {
	Load
	room  *room // nil: each has a lock of its own
	start time.Time
	left  atomic.Int64 // cycles to go
	over  atomic.Bool
	ended chan struct{} // closed by the first seat that fails
	fail  sync.Once
	seats []*seat
}

// A seat is what one goroutine does in a race.
type seat struct {
	lock   Lock
	began  atomic.Int64 // when it called Lock, as the age of the race; negative: it does not wait
	cycles atomic.Int64 // completed before the race was over
	waits  histogram
	passes histogram
	moves  int64 // cycles after one of another seat
	err    error
	_      [64]byte // no other seat on the same cache line
}

func (l Load) run(ctx context.Context, c Contender, name func(seat int) string, room *room) (*Result, error) {
	clients, close, err := parties(ctx, c, Options{TTL: l.TTL}, l.Clients)
	if err != nil {
		return nil, err
	}
	r := &race{Load: l, room: room}
	for i := range l.Goroutines {
		r.seats = append(r.seats, &seat{lock: clients[i%l.Clients].Lock(name(i))})
	}
	result, err := r.run(ctx, c)
	return result, errors.Join(err, close())
}

// warm lets every seat go round once before anything is measured, and wait once
// if they are to: connections are made and scripts loaded then.
func (r *race) warm(ctx context.Context) error {
	for _, s := range r.seats {
		if err := errors.Join(s.lock.Lock(ctx), s.lock.Unlock(ctx)); err != nil {
			return err
		}
	}
	if r.room == nil {
		return nil
	}
	return r.queue(ctx)
}

// queueing is how long everybody has to begin to wait.
const queueing = 100 * time.Millisecond

// queue has every seat but the first wait for that. Who does not get the lock
// within patience is left to the race.
func (r *race) queue(ctx context.Context) error {
	first := r.seats[0].lock
	if err := first.Lock(ctx); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := make(chan error, len(r.seats))
	for _, s := range r.seats[1:] {
		go func() {
			err := s.lock.Lock(waiting)
			switch {
			case err == nil:
				err = s.lock.Unlock(ctx)
			case waiting.Err() != nil:
				err = ctx.Err()
			}
			errs <- err
		}()
	}
	errs <- errors.Join(pass(ctx, queueing), first.Unlock(context.WithoutCancel(ctx)))
	var all error
	for range r.seats {
		all = errors.Join(all, <-errs)
	}
	return all
}

// run measures one race. Waits that go on at its end have patience to end.
func (r *race) run(ctx context.Context, c Contender) (*Result, error) {
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	before, err := usageNow(ctx, c.Meter, true)
	if err != nil {
		return nil, err
	}
	r.begin()
	riding, hurry := context.WithCancel(ctx)
	defer hurry()
	all := r.spread(riding)
	r.await(ctx, all)
	r.over.Store(true)
	waiting := r.unended()
	after, err := usageNow(ctx, c.Meter, false)
	defer time.AfterFunc(patience, hurry).Stop()
	<-all
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return r.result(c, between(before, after), waiting), r.failure()
}

func (r *race) begin() {
	r.left.Store(r.Cycles)
	r.ended = make(chan struct{})
	r.start = time.Now()
}

// spread starts every seat. The channel is closed when all have ended.
func (r *race) spread(ctx context.Context) <-chan struct{} {
	var group sync.WaitGroup
	for i, s := range r.seats {
		s.began.Store(-1)
		group.Go(func() { r.ride(ctx, s, int64(i)+1) })
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	return done
}

// await waits for the end of the race.
func (r *race) await(ctx context.Context, all <-chan struct{}) {
	var end <-chan time.Time
	if r.Cycles == 0 {
		timer := time.NewTimer(r.Time)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-end:
	case <-all:
	case <-r.ended:
	case <-ctx.Done():
	}
}

// more takes one of the cycles that are left.
func (r *race) more() bool {
	if r.over.Load() {
		return false
	}
	return r.Cycles == 0 || r.left.Add(-1) >= 0
}

func (r *race) age() time.Duration { return time.Since(r.start) }

func (r *race) ride(ctx context.Context, s *seat, number int64) {
	for s.err == nil && r.more() {
		s.err = r.cycle(ctx, s, number)
	}
	if s.err != nil {
		r.fail.Do(func() { close(r.ended) })
	}
}

func (r *race) cycle(ctx context.Context, s *seat, number int64) error {
	began := r.age()
	s.began.Store(int64(began))
	if err := s.lock.Lock(ctx); err != nil {
		return r.unlessOver(ctx, err)
	}
	held := r.age()
	s.began.Store(-1)
	counts := !r.over.Load()
	if counts {
		s.waits.add(held - began)
		s.cycles.Add(1)
	}
	if r.room != nil {
		if before, other := r.room.enter(number); other && counts {
			s.moves++
			s.passes.add(held - before)
		}
		r.room.leave(r.age())
	}
	return s.lock.Unlock(context.WithoutCancel(ctx))
}

// unlessOver is err, but for a wait that was ended because the race was over.
func (r *race) unlessOver(ctx context.Context, err error) error {
	if r.over.Load() && ctx.Err() != nil {
		return nil
	}
	return err
}

// unended is the longest wait that has not ended.
func (r *race) unended() (longest time.Duration) {
	now := r.age()
	for _, s := range r.seats {
		if began := s.began.Load(); began >= 0 {
			longest = max(longest, now-time.Duration(began))
		}
	}
	return longest
}

func (r *race) failure() error {
	var errs []error
	for _, s := range r.seats {
		errs = append(errs, s.err)
	}
	return errors.Join(errs...)
}

func (r *race) result(c Contender, used spent, waiting time.Duration) *Result {
	res := newResult(c)
	var waits, passes histogram
	var cycles, moves int64
	for _, s := range r.seats {
		waits.merge(&s.waits)
		passes.merge(&s.passes)
		n := s.cycles.Load()
		cycles, moves, res.Shares = cycles+n, moves+s.moves, append(res.Shares, n)
	}
	used.perCycle(res, float64(cycles))
	some := waits.total > 0
	res.set(LockP50, micros(waits.quantile(.5)), some)
	res.set(LockP99, micros(waits.quantile(.99)), some)
	res.set(LockMax, micros(max(waits.max, waiting)), true)
	res.Locks = waits.distribution()
	if r.room != nil {
		r.shared(res, &passes, float64(moves)/used.elapsed.Seconds())
	}
	return res
}

// shared records what there is to say where everybody wants one lock.
func (r *race) shared(res *Result, passes *histogram, rate float64) {
	res.set(HandOvers, rate, true)
	res.set(PassP50, micros(passes.quantile(.5)), passes.total > 0)
	res.set(PassP99, micros(passes.quantile(.99)), passes.total > 0)
	res.Passes = passes.distribution()
	res.set(Violations, float64(r.room.violations()), true)
	least := slices.Min(res.Shares)
	res.set(Fairness, float64(slices.Max(res.Shares))/float64(least), least > 0)
	starved := 0
	for _, n := range res.Shares {
		if n == 0 {
			starved++
		}
	}
	res.set(Starved, float64(starved), true)
}

// A room is what one lock guards. It is made of atomics so that a lock that does
// not guard it breaks the count and nothing else.
type room struct {
	inside   atomic.Int64
	overlaps atomic.Int64
	entries  atomic.Int64
	counter  atomic.Int64 // read and written back, never added to
	last     atomic.Int64 // who was in last
	left     atomic.Int64 // and since when not any more
}

// enter counts up. It returns when the last one left, and whether that was
// somebody else.
func (r *room) enter(who int64) (since time.Duration, other bool) {
	if r.inside.Add(1) != 1 {
		r.overlaps.Add(1)
	}
	r.entries.Add(1)
	r.counter.Store(r.counter.Load() + 1)
	last := r.last.Swap(who)
	return time.Duration(r.left.Load()), last != who && last != 0
}

func (r *room) leave(now time.Duration) {
	r.left.Store(int64(now))
	r.inside.Add(-1)
}

func (r *room) violations() int64 {
	return r.overlaps.Load() + r.entries.Load() - r.counter.Load()
}
