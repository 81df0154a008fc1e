package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A ledger counts what hooks are told of.
type ledger struct {
	mu       sync.Mutex
	problems []string
	calls    int // that have begun and not ended
	waiting  int
	begun    int
	outcomes map[string]int // of all calls that have ended
	ends     map[string]int // of all leases that have ended
	open     map[uint64]dlock.AcquiredEvent
}

type ledgerKey struct{}

// A ledgerCall is one call, which the contexts of its hooks have.
type ledgerCall struct{ isQueued, hasEnded bool }

func (l *ledger) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *ledger) endCall(ctx context.Context, what string, isQueued bool) {
	c, ok := ctx.Value(ledgerKey{}).(*ledgerCall)
	if !ok || c.hasEnded {
		l.problem("%s of no call, or of one that has ended", what)
		return
	}
	c.hasEnded = true
	if isQueued {
		l.waiting--
	}
	l.calls--
	l.outcomes[what]++
}

func (l *ledger) endLease(what string, e dlock.ReleasedEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.open[e.Lease]
	if !ok || a.Name != e.Name || a.Shared != e.Shared || a.Token != e.Token || a.Nested != e.Nested || e.Age < 0 {
		l.problem("%s as %+v, acquired as %+v", what, e, a)
	}
	delete(l.open, e.Lease)
	l.ends[what]++
}

// hooks returns hooks that keep l.
func (l *ledger) hooks() dlock.Hooks {
	l.outcomes, l.ends, l.open = map[string]int{}, map[string]int{}, map[uint64]dlock.AcquiredEvent{}
	return dlock.Hooks{
		Acquiring: func(ctx context.Context, _ dlock.AcquiringEvent) context.Context {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls++
			l.begun++
			return context.WithValue(ctx, ledgerKey{}, new(ledgerCall))
		},
		Waiting: func(ctx context.Context, _ dlock.WaitingEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			c := ctx.Value(ledgerKey{}).(*ledgerCall)
			if c.isQueued {
				l.problem("a call waits twice")
			}
			c.isQueued = true
			l.waiting++
		},
		Acquired: func(ctx context.Context, e dlock.AcquiredEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.endCall(ctx, "acquired", e.Queued)
			l.open[e.Lease] = e
		},
		NotAcquired: func(ctx context.Context, e dlock.NotAcquiredEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.endCall(ctx, string(e.Outcome), e.Queued)
			if e.Err == nil {
				l.problem("not acquired without an error")
			}
		},
		Released: func(_ context.Context, e dlock.ReleasedEvent) { l.endLease("released", e) },
		Lost: func(e dlock.LostEvent) {
			l.endLease("lost", dlock.ReleasedEvent{Name: e.Name, Shared: e.Shared, Lease: e.Lease, Token: e.Token, Nested: e.Nested, Age: e.Age})
		},
		Closed: func(_ context.Context, e dlock.ClosedEvent) { l.endLease("closed", dlock.ReleasedEvent(e)) },
	}
}

// isBalanced fails t unless all that has begun has ended, once.
func (l *ledger) isBalanced(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.problems[:min(5, len(l.problems))] {
		t.Error(p)
	}
	if l.calls != 0 || l.waiting != 0 || len(l.open) != 0 {
		t.Errorf("%d calls, %d waiters and %d leases have not ended", l.calls, l.waiting, len(l.open))
	}
}

// panics calls f and reports what it panics with.
func panics(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// A hook Closed that panics keeps Close neither from the other locks nor from the
// backend, and panics on in Close, also where locks are given back one by one.
func TestClosedHookPanics(t *testing.T) {
	server := memory.NewServer()
	bySession, _ := newBySession(server)
	for name, b := range map[string]backend.Backend{"Together": memory.New(server), "OneByOne": bySession} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told atomic.Int32
				c, err := dlock.New(b, &dlock.Options{Hooks: dlock.Hooks{Closed: func(context.Context, dlock.ClosedEvent) {
					if told.Add(1) == 1 {
						panic("closed")
					}
				}}})
				is(t, err, nil)
				for _, name := range []string{"x", "y", "z"} {
					lock(t, c.Mutex(name))
				}
				lock(t, c.Mutex("rest", dlock.WithMinHold(time.Millisecond)))
				if v := panics(func() { _ = c.Close(t.Context()) }); v != "closed" {
					t.Errorf("Close panicked with %v, want that of the hook", v)
				}
				if n := told.Load(); n != 4 {
					t.Errorf("Closed was called for %d leases, want 4", n)
				}
				time.Sleep(time.Millisecond)
				other := client(t, memory.New(server), dlock.Options{})
				for _, name := range []string{"x", "y", "z", "rest"} {
					l, err := other.Mutex(name).TryLock(t.Context())
					is(t, err, nil)
					unlock(t, l)
				}
			})
		})
	}
}

// A hook that panics leaves the lock as if it had not been called, and panics on in
// the call that it is called for.
func TestHooksThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Value
		var ledger ledger
		hook := func(name string) {
			if armed.CompareAndSwap(name, "") {
				panic(name)
			}
		}
		s := memory.NewServer()
		a := client(t, memory.New(s), dlock.Options{Hooks: dlock.JoinHooks(ledger.hooks(), dlock.Hooks{
			Acquiring: func(ctx context.Context, _ dlock.AcquiringEvent) context.Context { hook("acquiring"); return ctx },
			Waiting:   func(context.Context, dlock.WaitingEvent) { hook("waiting") },
			Acquired:  func(context.Context, dlock.AcquiredEvent) { hook("acquired") },
			Released:  func(context.Context, dlock.ReleasedEvent) { hook("released") },
		})})
		b := client(t, memory.New(s), dlock.Options{})
		m := a.Mutex("x")
		panicsWith := func(name string, f func()) {
			t.Helper()
			armed.Store(name)
			if v := panics(f); v != name {
				t.Fatalf("panicked with %v, want %s", v, name)
			}
			synctest.Wait()
		}
		free := func() {
			t.Helper()
			for _, c := range []*dlock.Client{b, a} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				l, err := c.Mutex("x").Lock(ctx)
				cancel()
				is(t, err, nil)
				unlock(t, l)
			}
		}
		wait := func(ctx context.Context, l dlock.Locker) func() {
			return func() { _, _ = l.Lock(ctx) }
		}

		here := lock(t, m) // Waiting, for a goroutine of this client
		panicsWith("waiting", wait(t.Context(), m))
		under := here.Context(t.Context()) // and under a lease
		inner, err := m.Lock(under)
		is(t, err, nil)
		panicsWith("waiting", wait(under, m))
		unlock(t, inner)
		inner, err = m.TryLock(under)
		is(t, err, nil)
		unlock(t, inner)
		unlock(t, here)
		free()

		there := lock(t, b.Mutex("x")) // on the server
		panicsWith("waiting", wait(t.Context(), m))
		panicsWith("waiting", wait(t.Context(), a.Multi([]string{"a", "x"})))
		unlock(t, there)
		free()
		unlock(t, lock(t, b.Mutex("a")))

		panicsWith("acquiring", wait(t.Context(), m))
		panicsWith("acquired", wait(t.Context(), m))
		free()
		panicsWith("acquired", wait(t.Context(), a.Multi([]string{"a", "x"})))
		free()
		unlock(t, lock(t, b.Mutex("a")))

		lease := lock(t, m)
		panicsWith("released", func() { _ = lease.Unlock(t.Context()) })
		free()
		lease = lock(t, m)
		told := make(chan struct{})
		done := queueUp(t, m, 1, func(l *dlock.Lease) { <-told; unlock(t, l) })
		panicsWith("released", func() { _ = lease.Unlock(t.Context()) })
		close(told)
		done.Wait()
		free()
		ledger.isBalanced(t)
	})
}

// A hook that never returns does not keep Close, nor the backend from being closed.
func TestCloseLeavesAHookBehind(t *testing.T) {
	type hooks = dlock.Hooks
	end := make(chan struct{})
	all := map[string]hooks{
		"Closed":        {Closed: func(context.Context, dlock.ClosedEvent) { <-end }},
		"Lost":          {Lost: func(dlock.LostEvent) { <-end }},
		"Renewed":       {Renewed: func(dlock.RenewedEvent) { <-end }},
		"RenewalFailed": {RenewalFailed: func(dlock.RenewalFailedEvent) { <-end }},
		"Rested":        {Closed: func(context.Context, dlock.ClosedEvent) { <-end }},
	}
	for name, stuck := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end = make(chan struct{})
				defer close(end)
				s := memory.NewServer()
				b, inner := newBySession(s)
				c, err := dlock.New(b, &dlock.Options{TTL: 3 * time.Second, Hooks: stuck})
				is(t, err, nil)
				lock(t, c.Mutex("x"))
				lock(t, c.Mutex("y"))
				if name == "Rested" {
					lock(t, c.Mutex("z", dlock.WithMinHold(time.Second)))
				}
				if name == "RenewalFailed" {
					inner.Cut()
				}
				time.Sleep(2 * time.Second) // of which a renewal is
				if name == "Lost" {
					s.Evict("y")
					synctest.Wait()
				}
				inner.Heal()
				start := time.Now()
				err = c.Close(context.Background())
				short(t, "Close", start, 3200*time.Millisecond)
				if err == nil {
					t.Error("nothing was left behind")
				}
				if s.Names() != 0 {
					t.Error("the backend was not closed")
				}
				is(t, c.Close(context.Background()), nil)
			})
		})
	}
}

// recordHooks returns hooks that call note with the name and the event of each call.
func recordHooks(note func(what string, e any)) dlock.Hooks {
	return dlock.Hooks{
		Acquiring: func(ctx context.Context, e dlock.AcquiringEvent) context.Context {
			note("acquiring", e)
			return ctx
		},
		Waiting:       func(_ context.Context, e dlock.WaitingEvent) { note("waiting", e) },
		Acquired:      func(_ context.Context, e dlock.AcquiredEvent) { note("acquired", e) },
		NotAcquired:   func(_ context.Context, e dlock.NotAcquiredEvent) { note("not acquired", e) },
		Renewed:       func(e dlock.RenewedEvent) { note("renewed", e) },
		RenewalFailed: func(e dlock.RenewalFailedEvent) { note("renewal failed", e) },
		Released:      func(_ context.Context, e dlock.ReleasedEvent) { note("released", e) },
		Lost:          func(e dlock.LostEvent) { note("lost", e) },
		Closed:        func(_ context.Context, e dlock.ClosedEvent) { note("closed", e) },
	}
}

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		o := dlock.Options{TTL: 9 * time.Second, Hooks: recordHooks(func(what string, _ any) {
			mu.Lock()
			defer mu.Unlock()
			if what != "acquiring" {
				seen = append(seen, what)
			}
		})}
		s, _, a, _ := pair(t, o)
		lease, unlocked := lock(t, a.Mutex("x")), make(chan struct{})
		go func() {
			next, err := a.Mutex("x").Lock(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			<-unlocked
			s.Evict("x")
			<-next.Done()
		}()
		time.Sleep(4 * time.Second)
		unlock(t, lease)
		close(unlocked)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(seen, " ")
		got = strings.Replace(got, "acquired released", "released acquired", 1) // by two goroutines
		if want := "acquired waiting renewed released acquired lost"; got != want {
			t.Errorf("hooks were called as %q, want %q", got, want)
		}
	})
}

// sorted records all events, by kind.
type recorder struct {
	mu   sync.Mutex
	seen map[string][]any
}

func (r *recorder) hooks() dlock.Hooks {
	r.seen = make(map[string][]any)
	return recordHooks(func(what string, e any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen[what] = append(r.seen[what], e)
	})
}

// events returns the events of that kind since the last call.
func events[E any](t *testing.T, r *recorder, what string, n int) []E {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.seen[what]
	delete(r.seen, what)
	if len(all) != n {
		t.Fatalf("%s: %d events, want %d: %+v", what, len(all), n, all)
	}
	typed := make([]E, n)
	for i := range all {
		typed[i] = all[i].(E)
	}
	return typed
}

// Each call that gets no lock says why.
func TestHooksOfCallsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := memory.NewServer()
		ba := memory.New(s)
		a := client(t, ba, dlock.Options{TTL: 9 * time.Second, Hooks: r.hooks()})
		b := client(t, memory.New(s), dlock.Options{})
		other := lock(t, b.Mutex("x"))
		m := a.Mutex("x")
		var none context.Context
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		soon := func(end func(context.CancelFunc)) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			end(cancel)
			return ctx
		}
		fail := func(name string, outcome dlock.Outcome, queued bool, waited time.Duration, call func() (*dlock.Lease, error)) {
			t.Helper()
			if _, err := call(); err == nil {
				t.Fatalf("%s: no error", name)
			}
			e := events[dlock.NotAcquiredEvent](t, &r, "not acquired", 1)[0]
			if e.Outcome != outcome || e.Queued != queued || e.Waited != waited || e.Err == nil {
				t.Errorf("%s: %+v", name, e)
			}
			events[dlock.AcquiringEvent](t, &r, "acquiring", 1)
			n := 0
			if queued {
				n = 1
			}
			events[dlock.WaitingEvent](t, &r, "waiting", n)
		}
		fail("TryLock", dlock.OutcomeHeld, false, 0, func() (*dlock.Lease, error) { return m.TryLock(t.Context()) })
		fail("Lock until a deadline", dlock.OutcomeHeld, true, time.Second, func() (*dlock.Lease, error) {
			return m.Lock(soon(func(context.CancelFunc) {}))
		})
		fail("Lock until canceled", dlock.OutcomeCanceled, true, time.Second/2, func() (*dlock.Lease, error) {
			return m.Lock(soon(func(cancel context.CancelFunc) { time.AfterFunc(time.Second/2, cancel) }))
		})
		fail("Lock for the longest wait", dlock.OutcomeHeld, true, time.Second, func() (*dlock.Lease, error) {
			return a.Mutex("x", dlock.WithMaxWait(time.Second)).Lock(t.Context())
		})
		fail("Lock with a context that is done", dlock.OutcomeCanceled, false, 0, func() (*dlock.Lease, error) { return m.Lock(canceled) })
		fail("Lock without a context", dlock.OutcomeFailed, false, 0, func() (*dlock.Lease, error) { return m.Lock(none) })
		fail("Lock without a name", dlock.OutcomeFailed, false, 0, func() (*dlock.Lease, error) { return a.Mutex("").Lock(t.Context()) })
		fail("a Multi", dlock.OutcomeHeld, true, time.Second, func() (*dlock.Lease, error) {
			return a.Multi([]string{"x", "w"}).Lock(soon(func(context.CancelFunc) {}))
		})
		ba.Cut()
		fail("a silent server", dlock.OutcomeFailed, false, 3*time.Second, func() (*dlock.Lease, error) { return a.Mutex("y").Lock(t.Context()) })
		ba.Heal()
		events[any](t, &r, "acquired", 0)
		unlock(t, other)
	})
}

// Each lease says how it came and how it went, readers of one hold and multi-locks too.
func TestHooksOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := memory.NewServer()
		a, err := dlock.New(memory.New(s), &dlock.Options{TTL: 9 * time.Second, Hooks: r.hooks()})
		is(t, err, nil)
		b := client(t, memory.New(s), dlock.Options{})
		acquired := func() dlock.AcquiredEvent {
			t.Helper()
			return events[dlock.AcquiredEvent](t, &r, "acquired", 1)[0]
		}
		released := func(from dlock.AcquiredEvent, age time.Duration) {
			t.Helper()
			e := events[dlock.ReleasedEvent](t, &r, "released", 1)[0]
			want := dlock.ReleasedEvent{Name: from.Name, Shared: from.Shared, Lease: from.Lease, Token: from.Token, Nested: from.Nested, Age: age}
			if e != want {
				t.Errorf("released as %+v, want %+v", e, want)
			}
		}

		m := a.RWMutex("x")
		lease := lock(t, m)
		first := acquired()
		if first.Op != "lock" || first.Name != "x" || first.FullName != "x" || first.Place == "" || first.Lease == 0 || first.Token != lease.Token() || first.Queued || first.HandOver != dlock.NoHandOver {
			t.Errorf("acquired as %+v", first)
		}
		inner, err := m.RLock(lease.Context(t.Context()))
		is(t, err, nil)
		nested := acquired()
		if !nested.Nested || !nested.Shared || nested.Op != "rlock" {
			t.Errorf("entered again as %+v", nested)
		}
		time.Sleep(time.Second)
		unlock(t, inner)
		released(nested, time.Second)

		done := queueUp(t, a.Mutex("x"), 1, func(l *dlock.Lease) { unlock(t, l) })
		time.Sleep(time.Second)
		unlock(t, lease)
		done.Wait()
		if ends := events[dlock.ReleasedEvent](t, &r, "released", 2); ends[0].Age+ends[1].Age != 2*time.Second {
			t.Errorf("released after %v and %v", ends[0].Age, ends[1].Age)
		}
		if e := acquired(); !e.Queued || e.HandOver != dlock.LocalHandOver || e.Waited != time.Second {
			t.Errorf("acquired from this client as %+v", e)
		}

		other := lock(t, b.Mutex("x"))
		done = queueUp(t, a.Mutex("x"), 1, func(l *dlock.Lease) { unlock(t, l) })
		time.Sleep(time.Second)
		unlock(t, other)
		done.Wait()
		if e := acquired(); !e.Queued || e.HandOver != dlock.RemoteHandOver {
			t.Errorf("acquired from another client as %+v", e)
		}
		events[any](t, &r, "released", 1)

		var readers []*dlock.Lease
		for range 5 {
			l, err := m.RLock(t.Context())
			is(t, err, nil)
			readers = append(readers, l)
		}
		events[dlock.AcquiredEvent](t, &r, "acquired", 5)
		for _, l := range readers[:3] {
			unlock(t, l)
		}
		events[dlock.ReleasedEvent](t, &r, "released", 3)
		s.Evict("x")
		synctest.Wait()
		for _, e := range events[dlock.LostEvent](t, &r, "lost", 2) {
			if !errors.Is(e.Err, dlock.ErrLost) || !e.Shared || e.Cause != dlock.LossTaken {
				t.Errorf("lost as %+v", e)
			}
		}
		is(t, readers[3].Unlock(t.Context()), dlock.ErrLost)

		both := lock(t, a.Multi([]string{"x", "y"}))
		multi := acquired()
		if multi.Name != "x y" || multi.Token != 0 || multi.FullName != "" {
			t.Errorf("acquired as %+v", multi)
		}
		unlock(t, both)
		released(multi, 0)
		lock(t, a.Multi([]string{"x", "y"}))
		acquired()
		s.Evict("y")
		synctest.Wait()
		if e := events[dlock.LostEvent](t, &r, "lost", 1)[0]; e.Name != "x y" || !strings.Contains(e.Err.Error(), `"y"`) {
			t.Errorf("lost as %+v", e)
		}

		rest := lock(t, a.Mutex("z", dlock.WithMinHold(time.Minute)))
		unlock(t, rest)
		released(acquired(), 0)
		time.Sleep(2 * time.Minute)

		lock(t, m)
		lock(t, a.Multi([]string{"y", "z"}))
		is(t, a.Close(t.Context()), nil)
		for _, e := range events[dlock.ClosedEvent](t, &r, "closed", 2) {
			if e.Err != nil {
				t.Errorf("closed as %+v", e)
			}
		}
		events[any](t, &r, "released", 0)
		events[any](t, &r, "lost", 0)
	})
}

// Several goroutines notice that a multi-lock is lost: the one that tells of the losses,
// and the one that releases the other locks. The hooks hear of it once.
func TestLossOfAMultiIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := memory.NewServer()
		ba := memory.New(s)
		a := client(t, ba, dlock.Options{TTL: 30 * time.Second, Hooks: r.hooks()})
		lock(t, a.Multi([]string{"x", "y"}, dlock.WithMinHold(time.Second)))
		ba.Delay(100 * time.Millisecond) // for so long y is being released, and x is not yet
		s.Evict("x")
		time.Sleep(time.Second)
		synctest.Wait()
		events[dlock.LostEvent](t, &r, "lost", 1)
	})
}

// A renewal that fails is heard of before the lock is lost.
func TestHooksOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		ba := memory.New(nil)
		a := client(t, ba, dlock.Options{TTL: 30 * time.Second, Hooks: r.hooks()})
		lease := lock(t, a.Mutex("x"))
		time.Sleep(11 * time.Second)
		e := events[dlock.RenewedEvent](t, &r, "renewed", 1)[0]
		if e.Name != "x" || e.Token != lease.Token() || e.TTL != 30*time.Second || e.Left < 19*time.Second || e.Left > 20*time.Second {
			t.Errorf("renewed as %+v", e)
		}
		ba.Cut()
		<-lease.Done()
		synctest.Wait()
		r.mu.Lock()
		failures := r.seen["renewal failed"]
		r.mu.Unlock()
		if len(failures) == 0 {
			t.Fatal("no failure was heard of")
		}
		last := e.TTL
		for _, f := range failures {
			f := f.(dlock.RenewalFailedEvent)
			if f.Name != "x" || f.Err == nil || f.Left > last || f.Left <= 0 {
				t.Errorf("%+v after %v were left", f, last)
			}
			last = f.Left
		}
		if e := events[dlock.LostEvent](t, &r, "lost", 1)[0]; e.Cause != dlock.LossExpired {
			t.Errorf("lost as %+v", e)
		}
		ba.Heal()
		<-lock(t, a.Mutex("x", dlock.WithMaxHold(time.Second))).Done()
		synctest.Wait()
		if e := events[dlock.LostEvent](t, &r, "lost", 1)[0]; e.Cause != dlock.LossMaxHold {
			t.Errorf("lost as %+v", e)
		}
	})
}

type spanKey struct{}

// What Acquiring returns is what the other hooks of the call and the backend get.
func TestAcquiringPassesAContext(t *testing.T) {
	b := &contextKeeper{Backend: memory.New(nil)}
	has := func(what string, ctx context.Context) {
		if got := ctx.Value(spanKey{}); got != "inner" {
			t.Errorf("%s has the span %v", what, got)
		}
	}
	begin := func(span string) dlock.Hooks {
		return dlock.Hooks{Acquiring: func(ctx context.Context, _ dlock.AcquiringEvent) context.Context {
			return context.WithValue(ctx, spanKey{}, span)
		}}
	}
	nothing := dlock.Hooks{Acquiring: func(context.Context, dlock.AcquiringEvent) context.Context { return nil }}
	c := client(t, b, dlock.Options{Hooks: dlock.JoinHooks(begin("outer"), begin("inner"), nothing, dlock.Hooks{
		Acquired:    func(ctx context.Context, _ dlock.AcquiredEvent) { has("Acquired", ctx) },
		NotAcquired: func(ctx context.Context, _ dlock.NotAcquiredEvent) { has("NotAcquired", ctx) },
		Waiting:     func(ctx context.Context, _ dlock.WaitingEvent) { has("Waiting", ctx) },
	})})
	lease := lock(t, c.Mutex("x"))
	has("the backend", b.ctx)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := c.Mutex("x").Lock(ctx)
	is(t, err, dlock.ErrHeld)
	unlock(t, lease)
}

// A contextKeeper remembers the context of the last request.
type contextKeeper struct {
	*memory.Backend
	ctx context.Context
}

func (b *contextKeeper) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	b.ctx = ctx
	return b.Backend.Acquire(ctx, r)
}

// Hooks that nobody has set allocate nothing.
func TestHooksCostNothing(t *testing.T) {
	cost := func(h dlock.Hooks) float64 {
		c := client(t, memory.New(nil), dlock.Options{Hooks: h})
		m, ctx := c.Mutex("x"), context.Background()
		return testing.AllocsPerRun(1000, func() {
			l, _ := m.Lock(ctx)
			_ = l.Unlock(ctx)
		})
	}
	const most = 25 // of a Lock and an Unlock in memory
	if n := cost(dlock.Hooks{}); n > most {
		t.Errorf("Lock and Unlock allocate %v times, want %d at most", n, most)
	}
	if n := cost(dlock.Hooks{Renewed: func(dlock.RenewedEvent) {}}); n > most {
		t.Errorf("with the hook Renewed they allocate %v times, want %d at most", n, most)
	}
}

// A lock that is lost before its Acquired has returned is told of afterwards.
func TestLostWhileAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		s := memory.NewServer()
		c := client(t, memory.New(s), dlock.Options{Hooks: dlock.Hooks{
			Acquired: func(context.Context, dlock.AcquiredEvent) {
				s.Evict("x")
				time.Sleep(time.Second)
				seen = append(seen, "acquired")
			},
			Lost: func(dlock.LostEvent) { seen = append(seen, "lost") },
		}})
		is(t, lock(t, c.Mutex("x")).Err(), dlock.ErrLost)
		time.Sleep(time.Second)
		if got := strings.Join(seen, " "); got != "acquired lost" {
			t.Errorf("the hooks were called as %q", got)
		}
	})
}

// A call whose hook Acquired panics does not keep the lock, not even for the minimum hold.
func TestAcquiredPanicsWithMinHold(t *testing.T) {
	for name, connect := range map[string]func(*memory.Server) backend.Backend{
		"OnTheServer":  func(s *memory.Server) backend.Backend { return memory.New(s) },
		"InTheProcess": func(s *memory.Server) backend.Backend { b, _ := newBySession(s); return b },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memory.NewServer()
				b := connect(server)
				armed := true
				a := client(t, b, dlock.Options{Hooks: dlock.Hooks{Acquired: func(context.Context, dlock.AcquiredEvent) {
					if armed {
						panic("acquired")
					}
				}}})
				other := client(t, memory.New(server), dlock.Options{})
				rest := dlock.WithMinHold(time.Hour)
				for _, l := range []dlock.Locker{a.Mutex("x", rest), a.Multi([]string{"x", "y"}, rest)} {
					armed = true
					if v := panics(func() { _, _ = l.Lock(t.Context()) }); v != "acquired" {
						t.Fatalf("panicked with %v", v)
					}
					armed = false
					for _, name := range []string{"x", "y"} {
						lease, err := other.Mutex(name).TryLock(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						unlock(t, lease)
					}
				}
			})
		})
	}
}

// A failingRelease is a server that does not confirm the release of one name.
type failingRelease struct {
	bySession
	name string
}

func (b failingRelease) Release(ctx context.Context, h *backend.Hold) error {
	if h.Name == b.name {
		return backend.Fail(backend.ErrUnavailable, errors.New("as the test wants it"))
	}
	return b.bySession.Release(ctx, h)
}

// Closed tells of a multi-lock once all its locks are given back, with what went wrong,
// whichever lock it was.
func TestClosedTellsOfEachLockOfAMulti(t *testing.T) {
	for _, failing := range []string{"x", "y", "z"} {
		synctest.Test(t, func(t *testing.T) {
			var r recorder
			b, _ := newBySession(memory.NewServer())
			c, err := dlock.New(failingRelease{b, failing}, &dlock.Options{TTL: time.Second, Hooks: r.hooks()})
			is(t, err, nil)
			lock(t, c.Multi([]string{"x", "y", "z"}))
			lock(t, c.Mutex("other"))
			_ = c.Close(t.Context())
			for _, e := range events[dlock.ClosedEvent](t, &r, "closed", 2) {
				if e.Name == "other" && e.Err == nil {
					continue
				}
				if e.Name != "x y z" || !errors.Is(e.Err, dlock.ErrUnavailable) || !strings.Contains(e.Err.Error(), `"`+failing+`"`) {
					t.Errorf("%s was not released, closed as %+v", failing, e)
				}
			}
		})
	}
}

// A multi-lock that was entered again has several leases on each lock, all of which Close
// ends and tells of.
func TestClosedTellsOfAMultiEnteredAgain(t *testing.T) {
	var ledger ledger
	c, err := dlock.New(memory.New(memory.NewServer()), &dlock.Options{Hooks: ledger.hooks()})
	is(t, err, nil)
	m := c.Multi([]string{"x", "y"})
	_, err = m.Lock(lock(t, m).Context(t.Context()))
	is(t, err, nil)
	is(t, c.Close(t.Context()), nil)
	if ledger.isBalanced(t); ledger.ends["closed"] != 2 {
		t.Errorf("the leases have ended with %v, want two closed", ledger.ends)
	}
}

// A hook Closed that panics for one lease is told of the others all the same, also of
// those on the same hold.
func TestClosedHookThatPanicsIsCalledForEveryLease(t *testing.T) {
	var ledger ledger
	c, err := dlock.New(memory.New(memory.NewServer()), &dlock.Options{Hooks: dlock.JoinHooks(ledger.hooks(), dlock.Hooks{
		Closed: func(context.Context, dlock.ClosedEvent) { panic("closed") },
	})})
	is(t, err, nil)
	for range 3 {
		_, err := c.RWMutex("readers").RLock(t.Context())
		is(t, err, nil)
	}
	multi := lock(t, c.Multi([]string{"x", "y"}))
	_, err = c.Mutex("x").Lock(multi.Context(t.Context()))
	is(t, err, nil)
	if v := panics(func() { _ = c.Close(t.Context()) }); v != "closed" {
		t.Errorf("Close panicked with %v, want that of the hook", v)
	}
	ledger.isBalanced(t)
}

// A lease that Close ends before Lock has returned is closed without an error, also that
// of a multi-lock.
func TestClosedWhileAcquired(t *testing.T) {
	for _, names := range [][]string{{"x"}, {"x", "y"}} {
		var r recorder
		var c *dlock.Client
		c, err := dlock.New(memory.New(memory.NewServer()), &dlock.Options{Hooks: dlock.JoinHooks(r.hooks(), dlock.Hooks{
			Acquired: func(ctx context.Context, _ dlock.AcquiredEvent) { is(t, c.Close(ctx), nil) },
		})})
		is(t, err, nil)
		is(t, lock(t, c.Multi(names)).Err(), dlock.ErrClosed)
		if e := events[dlock.ClosedEvent](t, &r, "closed", 1); e[0].Err != nil {
			t.Errorf("%v: closed as %+v, all was given back", names, e[0])
		}
	}
}

// A multi-lock is nested if each of its locks is, whichever comes last.
func TestNestedMulti(t *testing.T) {
	var r recorder
	c := client(t, memory.New(memory.NewServer()), dlock.Options{Hooks: r.hooks()})
	outer := lock(t, c.Mutex("b"))
	for _, names := range [][]string{{"b"}, {"a", "b"}, {"b", "c"}} {
		l, err := c.Multi(names).Lock(outer.Context(t.Context()))
		is(t, err, nil)
		unlock(t, l)
	}
	unlock(t, outer)
	var nested []string
	for _, e := range events[dlock.AcquiredEvent](t, &r, "acquired", 4) {
		if e.Nested {
			nested = append(nested, e.Name)
		}
	}
	if got := strings.Join(nested, ", "); got != "b" {
		t.Errorf("nested are %q, want that of b alone", got)
	}
}

// A multi-lock came by way of the server if one of its locks did, whichever that is, and else
// from this client if one did.
func TestHandOverOfAMulti(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		for _, on := range []struct {
			local, remote []string // who holds which locks before
			want          dlock.HandOver
		}{
			{nil, nil, dlock.NoHandOver},
			{[]string{"a"}, nil, dlock.LocalHandOver},
			{[]string{"c"}, nil, dlock.LocalHandOver},
			{[]string{"a"}, []string{"c"}, dlock.RemoteHandOver},
			{[]string{"c"}, []string{"a"}, dlock.RemoteHandOver},
			{nil, []string{"a"}, dlock.RemoteHandOver},
		} {
			var r recorder
			own := client(t, memory.New(s), dlock.Options{Hooks: r.hooks()})
			other := client(t, memory.New(s), dlock.Options{})
			held := make(map[string]*dlock.Lease)
			for _, name := range on.local {
				held[name] = lock(t, own.Mutex(name))
			}
			for _, name := range on.remote {
				held[name] = lock(t, other.Mutex(name))
			}
			events[any](t, &r, "acquired", len(on.local))
			done := queueUp(t, own.Multi([]string{"a", "b", "c"}), 1, func(l *dlock.Lease) { unlock(t, l) })
			for _, name := range slices.Sorted(maps.Keys(held)) { // in which it waits for them
				unlock(t, held[name])
				synctest.Wait()
			}
			done.Wait()
			if e := events[dlock.AcquiredEvent](t, &r, "acquired", 1)[0]; e.HandOver != on.want {
				t.Errorf("%v held here and %v elsewhere: the hand-over is %q, want %q", on.local, on.remote, e.HandOver, on.want)
			}
		}
	})
}

// A reader that has waited on the server is told so, and one that shares its hold is not.
func TestHandOverOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := memory.NewServer()
		a := client(t, memory.New(s), dlock.Options{Hooks: r.hooks()})
		b := client(t, memory.New(s), dlock.Options{})
		writer := lock(t, b.Mutex("x"))
		got := make(chan *dlock.Lease)
		go func() {
			lease, _ := a.RWMutex("x").RLock(t.Context())
			got <- lease
		}()
		synctest.Wait()
		unlock(t, writer)
		first := <-got
		second, err := a.RWMutex("x").RLock(t.Context())
		is(t, err, nil)
		all := events[dlock.AcquiredEvent](t, &r, "acquired", 2)
		if all[0].HandOver != dlock.RemoteHandOver || all[1].HandOver != dlock.NoHandOver {
			t.Errorf("acquired as %+v", all)
		}
		unlock(t, first)
		unlock(t, second)
	})
}

// A multi-lock that has lost a lock on the way, and takes all anew, tells how it came to those
// that it has in the end.
func TestHandOverOfAMultiAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := memory.NewServer()
		own := client(t, memory.New(s), dlock.Options{Hooks: r.hooks()})
		other := client(t, memory.New(s), dlock.Options{})
		a, b := lock(t, other.Mutex("a")), lock(t, own.Mutex("b"))
		events[any](t, &r, "acquired", 1)
		done := queueUp(t, own.Multi([]string{"a", "b"}), 1, func(l *dlock.Lease) { unlock(t, l) })
		unlock(t, a)
		synctest.Wait()
		s.Evict("a")
		synctest.Wait()
		unlock(t, b)
		done.Wait()
		if e := events[dlock.AcquiredEvent](t, &r, "acquired", 1)[0]; e.HandOver != dlock.LocalHandOver {
			t.Errorf("the hand-over is %q, want %q: that by way of the server was lost", e.HandOver, dlock.LocalHandOver)
		}
	})
}
