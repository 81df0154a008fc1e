package dlock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/internal/workload"
)

// single hides that many holds can be released with one request, and counts the
// releases that are under way.
type single struct {
	backend.Backend
	wait      time.Duration // what a release takes
	now, most atomic.Int64
}

func (b *single) Release(ctx context.Context, h *backend.Hold) error {
	n := b.now.Add(1)
	defer b.now.Add(-1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); {
		most = b.most.Load()
	}
	time.Sleep(b.wait)
	return b.Backend.Release(ctx, h)
}

func (b *single) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	b.Backend.(backend.Renewer).Renew(ctx, holds, report)
}

func lockMany(t *testing.T, c *dlock.Client, n int) []*dlock.Lease {
	t.Helper()
	var leases []*dlock.Lease
	for i := range n {
		leases = append(leases, lock(t, c.Mutex(strconv.Itoa(i))))
	}
	return leases
}

// Close gives back with one request what is held together.
func TestCloseReleasesTogether(t *testing.T) {
	s := memory.NewServer()
	c, err := dlock.New(memory.New(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	leases := lockMany(t, c, 1000)
	before := s.Ops()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.Ops() - before; n > 2 {
		t.Errorf("%d requests for 1000 locks", n)
	}
	if n := s.Names(); n != 0 {
		t.Errorf("%d locks are still held", n)
	}
	for _, lease := range leases {
		is(t, lease.Err(), dlock.ErrClosed)
	}
}

// The locks of a multi-lock are given back with one request.
func TestMultiReleasesTogether(t *testing.T) {
	s, _, a, b := pair(t, dlock.Options{})
	m := a.Multi([]string{"a", "b", "c", "d", "e"})
	lease := lock(t, m)
	before := s.Ops()
	unlock(t, lease)
	if n := s.Ops() - before; n != 1 {
		t.Errorf("%d requests for 5 locks", n)
	}
	unlock(t, lock(t, b.Multi([]string{"e", "a", "c"})))
}

// A backend that releases one hold at a time is asked by a few goroutines.
func TestCloseReleasesManyByFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		b := &single{Backend: memory.New(s), wait: time.Millisecond}
		c, err := dlock.New(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		lockMany(t, c, 1000)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := b.most.Load(); n > 64 || n < 16 {
			t.Errorf("%d releases at a time", n)
		}
		if n := s.Names(); n != 0 {
			t.Errorf("%d locks are still held", n)
		}
	})
}

// Close of a client that cannot reach its server ends with its context, however many
// locks it holds.
func TestCloseOfManyWhileCutOff(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mb := memory.New(nil)
			var b backend.Backend = mb
			if hidden {
				b = &single{Backend: mb}
			}
			c, err := dlock.New(b, nil)
			if err != nil {
				t.Fatal(err)
			}
			lockMany(t, c, 1000)
			mb.Cut()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			start := time.Now()
			_ = c.Close(ctx)
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("closed after %v", took)
			}
		})
	}
}

// The places of locks that are lost together are free as soon as the server has been
// told, or cannot be, and every loss is told to the hook.
func TestLossOfManyFreesTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		var told atomic.Int64
		ba := memory.New(nil)
		c := client(t, ba, dlock.Options{TTL: 2 * time.Second, Hooks: dlock.Hooks{Lost: func(dlock.LostEvent) { told.Add(1) }}})
		leases := lockMany(t, c, n)
		ba.Cut()
		for _, lease := range leases {
			<-lease.Done()
			is(t, lease.Err(), dlock.ErrLost)
		}
		time.Sleep(time.Second)
		if got := told.Load(); got != n {
			t.Errorf("%d of %d losses were told", got, n)
		}
		time.Sleep(2 * time.Second)
		ba.Heal()
		for i := range n {
			lease, err := c.Mutex(strconv.Itoa(i)).TryLock(t.Context())
			if err != nil {
				t.Fatal(i, err)
			}
			unlock(t, lease)
		}
	})
}

// sluggish renews one hold after the other, which takes its time.
type sluggish struct {
	*memory.Backend
	each time.Duration
	turn chan struct{} // of one
}

func (b *sluggish) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	time.Sleep(b.each * time.Duration(len(holds)))
	b.Backend.Renew(ctx, holds, report)
}

// A server that cannot renew more is given no more locks, and none is lost.
func TestLocksThatCannotBeRenewedAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &sluggish{Backend: memory.New(nil), each: 200 * time.Microsecond, turn: make(chan struct{}, 1)} // 5,000 a second
		c := client(t, b, dlock.Options{TTL: time.Second})
		var leases []*dlock.Lease
		var refused error
		for i := 0; i < 10_000 && refused == nil; i++ {
			lease, err := c.Mutex(strconv.Itoa(i)).Lock(t.Context())
			if err == nil {
				leases = append(leases, lease)
			}
			refused = err
			time.Sleep(400 * time.Microsecond)
		}
		is(t, refused, dlock.ErrUnavailable)
		if !errors.Is(refused, dlock.ErrUnavailable) || len(leases) < 1500 {
			t.Errorf("%v after %d locks", refused, len(leases))
		}
		time.Sleep(3 * time.Second)
		for i, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Fatalf("lock %d of %d: %v", i, len(leases), err)
			}
		}
	})
}

// A client and a server that have known very many names keep no room for them.
func TestNamesLeaveNoRoom(t *testing.T) {
	c := client(t, memory.New(nil), dlock.Options{TTL: time.Hour})
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for _, lease := range lockMany(t, c, 50_000) {
		unlock(t, lease)
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d kB are left of 50,000 names", grown>>10)
	}
	runtime.KeepAlive(c)
}

// A TTL that a busy machine cannot keep is warned of, once.
func TestShortTTLIsWarnedOf(t *testing.T) {
	for ttl, want := range map[time.Duration]int{99 * time.Millisecond: 1, 100 * time.Millisecond: 0} {
		var log bytes.Buffer
		c := client(t, memory.New(nil), dlock.Options{TTL: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			unlock(t, lock(t, c.Mutex("x", dlock.WithTTL(ttl))))
		}
		is(t, c.Close(t.Context()), nil) // it is logged in another goroutine
		if n := strings.Count(log.String(), "TTL"); n != want {
			t.Errorf("%d warnings of a TTL of %v, want %d", n, ttl, want)
		}
	}
}

// To close a multi-lock of very many names, or to enter it again, takes processor time in
// proportion to them: ten times as many take about ten times as much, and would take a hundred
// times as much if each went through all the others.
func TestMultiOfVeryManyNames(t *testing.T) {
	for what, use := range map[string]func(*dlock.Client, *dlock.Multi, *dlock.Lease){
		"closed": func(c *dlock.Client, _ *dlock.Multi, lease *dlock.Lease) {
			is(t, c.Close(t.Context()), nil)
			is(t, lease.Err(), dlock.ErrClosed)
		},
		"entered again": func(_ *dlock.Client, m *dlock.Multi, lease *dlock.Lease) {
			inner, err := m.TryLock(lease.Context(t.Context()))
			is(t, err, nil)
			unlock(t, inner)
			unlock(t, lease)
		},
	} {
		took := func(n int) time.Duration {
			names := make([]string, n)
			for i := range names {
				names[i] = strconv.Itoa(i)
			}
			s := memory.NewServer()
			c := client(t, memory.New(s), dlock.Options{})
			m := c.Multi(names)
			lease := lock(t, m)
			begin := workload.CPUTime()
			use(c, m, lease)
			took := workload.CPUTime() - begin
			if n := s.Names(); n != 0 {
				t.Errorf("%s: %d locks are still held", what, n)
			}
			return took
		}
		growsInProportion(t, what, took)
	}
}

// growsInProportion checks that took is about ten times as much for 20,000 as it is for 2,000.
func growsInProportion(t *testing.T, what string, took func(n int) time.Duration) {
	t.Helper()
	few, many := time.Hour, time.Hour
	for range 5 { // the collector may run in one of them and not in another
		few, many = min(few, took(2000)), min(many, took(20_000))
		if many <= 35*few {
			return
		}
	}
	t.Errorf("%s: %v for 2,000 and %v for 20,000", what, few, many)
}

// A reader that leaves a hold does not go through all the others that share it.
func TestManyReadersLeaveTheirHold(t *testing.T) {
	growsInProportion(t, "readers leave", func(n int) time.Duration {
		m := client(t, memory.New(memory.NewServer()), dlock.Options{TTL: time.Hour}).RWMutex("x")
		leases := make([]*dlock.Lease, n)
		for i := range leases {
			lease, err := m.RLock(t.Context())
			is(t, err, nil)
			leases[i] = lease
		}
		begin := workload.CPUTime()
		for _, lease := range leases {
			unlock(t, lease)
		}
		return workload.CPUTime() - begin
	})
}

// What has gone wrong with very many locks is told in few words. To tell of one error that
// contains all of them takes time in the square of their number.
func TestErrorOfVeryManyNames(t *testing.T) {
	const n = 500
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	ends := map[string]func(context.Context, *dlock.Client, *dlock.Lease) error{
		"unlocked": func(ctx context.Context, _ *dlock.Client, l *dlock.Lease) error { return l.Unlock(ctx) },
		"closed":   func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error { return c.Close(ctx) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := memory.New(memory.NewServer())
			told := make(chan error, 1)
			c, err := dlock.New(b, &dlock.Options{TTL: time.Hour, Hooks: dlock.Hooks{
				Released: func(_ context.Context, e dlock.ReleasedEvent) { told <- e.Err },
				Closed:   func(_ context.Context, e dlock.ClosedEvent) { told <- e.Err },
			}})
			if err != nil {
				t.Fatal(err)
			}
			lease := lock(t, c.Multi(names))
			b.Cut()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := end(ctx, c, lease); !errors.Is(err, dlock.ErrUnavailable) {
				t.Errorf("got %T", err)
			}
			text := (<-told).Error()
			if n := strings.Count(text, "unlock"); n > 30 || !strings.Contains(text, "more") {
				t.Errorf("in %d bytes the locks are named %d times", len(text), n)
			}
			_ = c.Close(ctx)
		})
	}
}

// A hasty backend asks nobody for who has no time.
type hasty struct{ *memory.Backend }

func (b hasty) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if ctx.Err() != nil {
		return nil, backend.WaitEnded(ctx, false)
	}
	return b.Backend.Acquire(ctx, r)
}

// Who has its turn to ask when its time is over knows what the calls before it were told.
func TestTurnAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting atomic.Int32
		slow := func(context.Context, dlock.WaitingEvent) {
			if waiting.Add(1)%2 == 0 { // the second, which sees its end after the first has left
				time.Sleep(2 * time.Second)
			}
		}
		s := memory.NewServer()
		a := client(t, hasty{memory.New(s)}, dlock.Options{Hooks: dlock.Hooks{Waiting: slow}})
		lease := lock(t, client(t, memory.New(s), dlock.Options{}).Mutex("x"))
		defer unlock(t, lease)
		for range 20 { // it may see first that it has its turn, or that its time is over
			var calls sync.WaitGroup
			for range 2 {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := a.Mutex("x").Lock(ctx); !errors.Is(err, dlock.ErrHeld) {
						t.Errorf("got %v", err)
					}
				})
				time.Sleep(100 * time.Millisecond)
			}
			calls.Wait()
		}
	})
}

// Who has its turn to ask so late that its time ends before the answer knows what the call before it
// was told, for as long as an answer may take.
func TestTurnJustBeforeTheDeadline(t *testing.T) {
	for last, want := range map[time.Duration]error{ // when the last call ends; the first does after 1 s
		1050 * time.Millisecond: dlock.ErrHeld,
		1400 * time.Millisecond: dlock.ErrHeld,
		1700 * time.Millisecond: dlock.ErrUnavailable, // the server has been silent for longer than it takes to answer
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.NewServer()
			b := memory.New(s)
			a := client(t, b, dlock.Options{})
			lease := lock(t, client(t, memory.New(s), dlock.Options{}).Mutex("x"))
			defer unlock(t, lease)
			var calls sync.WaitGroup
			for _, limit := range []time.Duration{time.Second, (time.Second + last) / 2, last} {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					if _, err := a.Mutex("x").Lock(ctx); limit == last && !errors.Is(err, want) {
						t.Errorf("got %v after %v, want %v", err, limit, want)
					}
				})
				synctest.Wait()
			}
			b.Cut()
			calls.Wait()
			b.Heal()
		})
	}
}

// A call that has asked for seconds without an answer knows nothing, although the call before it left with the
// lock held: it is free by then.
func TestTurnWithoutAnyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		b := memory.New(s)
		a := client(t, b, dlock.Options{})
		lease := lock(t, client(t, memory.New(s), dlock.Options{}).Mutex("x"))
		ends := func(after time.Duration) chan error {
			got := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			go func() {
				defer cancel()
				_, err := a.Mutex("x").Lock(ctx)
				got <- err
			}()
			synctest.Wait()
			return got
		}
		first, second := ends(time.Second), ends(3900*time.Millisecond)
		time.Sleep(time.Second - time.Millisecond)
		b.Cut()
		time.Sleep(2 * time.Millisecond)
		unlock(t, lease)
		if err := <-first; !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("who waited for a held lock: %v", err)
		}
		if err := <-second; !errors.Is(err, dlock.ErrUnavailable) {
			t.Errorf("the lock has been free for 2.9 s, and the server silent: %v", err)
		}
		b.Heal()
	})
}

// A lock that was held when a call left, and that its client has had since, may be free.
func TestTurnAfterAHoldOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		s := memory.NewServer()
		b := memory.New(s)
		a := client(t, b, dlock.Options{})
		lease := lock(t, client(t, memory.New(s), dlock.Options{}).Mutex("x"))
		var calls sync.WaitGroup
		ask := func(limit time.Duration, label string, had func(*dlock.Lease, error)) {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				had(a.Mutex("x", dlock.WithLabel(label)).Lock(ctx)) // by another label nothing is handed over
			})
			synctest.Wait()
		}
		ask(1000*ms, "first", func(_ *dlock.Lease, err error) { is(t, err, dlock.ErrHeld) })
		ask(2000*ms, "second", func(l *dlock.Lease, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			b.Delay(100 * ms)
			unlock(t, l)
		})
		ask(1250*ms, "third", func(_ *dlock.Lease, err error) { is(t, err, dlock.ErrUnavailable) })
		time.Sleep(1100 * ms)
		unlock(t, lease)
		calls.Wait()
	})
}
