package dlock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
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
)

// pair returns two clients of one server, in a bubble of fake time.
func pair(t *testing.T, o dlock.Options) (s *memory.Server, ba *memory.Backend, a, b *dlock.Client) {
	t.Helper()
	s = memory.NewServer()
	ba = memory.New(s)
	a, b = client(t, ba, o), client(t, memory.New(s), o)
	return s, ba, a, b
}

func client(t *testing.T, b backend.Backend, o dlock.Options) *dlock.Client {
	t.Helper()
	c, err := dlock.New(b, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func lock(t *testing.T, l dlock.Locker) *dlock.Lease {
	t.Helper()
	lease, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func unlock(t *testing.T, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err error, kinds ...error) {
	t.Helper()
	for _, k := range kinds {
		if !errors.Is(err, k) {
			t.Fatalf("got %v, want %v", err, k)
		}
	}
}

func TestHoldOutlivesItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		lease := lock(t, a.Mutex("x"))
		time.Sleep(24 * time.Hour)
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		_, err := b.Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrHeld)
		unlock(t, lease)
	})
}

// A holder that cannot reach the server knows of its loss one margin before
// the server lets the next one in.
func TestLossIsKnownBeforeTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{TTL: 30 * time.Second})
		lease := lock(t, a.Mutex("x"))
		time.Sleep(25 * time.Second) // the last renewal was after 20 s
		cut := time.Now()
		ba.Cut()
		defer ba.Heal()
		next := lock(t, b.Mutex("x"))
		has := time.Since(cut)
		<-lease.Done()
		is(t, lease.Err(), dlock.ErrLost)
		if has != 25*time.Second {
			t.Errorf("the next holder had the lock after %v, want 25s", has)
		}
		unlock(t, next)
	})
}

func TestLossAtTheLocalDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{TTL: 30 * time.Second})
		lease := lock(t, a.Mutex("x"))
		start := time.Now()
		s.Freeze()
		defer s.Thaw()
		<-lease.Done()
		if lost := time.Since(start); lost != 29*time.Second {
			t.Errorf("lost after %v, want the TTL less the margin of 1s", lost)
		}
	})
}

// A hold is given back after its loss: a renewal that was under way may have
// prolonged it.
func TestLostHoldIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{TTL: 30 * time.Second})
		lease := lock(t, a.Mutex("x"))
		start := time.Now()
		ba.Cut()
		<-lease.Done()
		is(t, lease.Err(), dlock.ErrLost)
		ba.Heal()
		next := lock(t, b.Mutex("x"))
		if free := time.Since(start); free >= 30*time.Second {
			t.Errorf("free after %v, lost after 29s", free)
		}
		unlock(t, next)
	})
}

// Renewals that fail are repeated within the lease.
func TestRenewalIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan time.Duration, 100)
		o := dlock.Options{TTL: 30 * time.Second}
		o.Hooks.Renewed = func(e dlock.RenewedEvent) { left <- e.Left }
		s, _, a, _ := pair(t, o)
		lease := lock(t, a.Mutex("x"))
		s.Freeze()
		time.Sleep(25 * time.Second)
		s.Thaw()
		time.Sleep(time.Second)
		synctest.Wait()
		if n, l := len(left), <-left; n != 1 || l < 3*time.Second || l > 4*time.Second {
			t.Errorf("renewed %d times with %v left, want once with 3 to 4 s", n, l)
		}
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		unlock(t, lease)
	})
}

func TestNoRequestAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{})
		unlock(t, lock(t, a.Mutex("x")))
		before := s.Ops()
		time.Sleep(time.Hour)
		if sent := s.Ops() - before; sent != 0 {
			t.Errorf("%d requests after unlock", sent)
		}
	})
}

// Renewals of many holds share requests.
func TestRenewalsAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{TTL: 30 * time.Second})
		for range 100 {
			lock(t, a.Mutex(time.Now().String()))
			time.Sleep(10 * time.Millisecond)
		}
		before := s.Ops()
		time.Sleep(time.Minute)
		if sent := s.Ops() - before; sent > 20 {
			t.Errorf("%d requests to renew 100 locks for 6 periods", sent)
		}
	})
}

func TestMaxHold(t *testing.T) {
	for _, hold := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s, _, a, b := pair(t, dlock.Options{TTL: 30 * time.Second})
			lease := lock(t, a.Mutex("x", dlock.WithMaxHold(hold)))
			before, start := s.Ops(), time.Now()
			<-lease.Done()
			is(t, lease.Err(), dlock.ErrLost)
			if lasted := time.Since(start); lasted != hold {
				t.Errorf("lasted %v, want %v", lasted, hold)
			}
			synctest.Wait()
			if renewals := s.Ops() - before - 1; hold <= 30*time.Second && renewals > 0 {
				t.Errorf("%d renewals within %v", renewals, hold)
			}
			if _, err := b.Mutex("x").TryLock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A downgrade does not start the longest time anew.
func TestMaxHoldAcrossDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memory.New(nil), dlock.Options{TTL: 10 * time.Second})
		start := time.Now()
		lease := lock(t, c.RWMutex("x", dlock.WithMaxHold(time.Minute)))
		time.Sleep(45 * time.Second)
		if err := lease.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-lease.Done()
		if lasted := time.Since(start); lasted != time.Minute {
			t.Errorf("lasted %v, want 1m", lasted)
		}
	})
}

func TestMaxHoldForEver(t *testing.T) {
	c := client(t, memory.New(nil), dlock.Options{})
	unlock(t, lock(t, c.Mutex("x", dlock.WithMaxHold(math.MaxInt64))))
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{TTL: time.Second})
		start := time.Now()
		unlock(t, lock(t, a.Mutex("x", dlock.WithMinHold(time.Minute))))
		if time.Since(start) != 0 {
			t.Error("unlock waited")
		}
		unlock(t, lock(t, b.Mutex("x")))
		if held := time.Since(start); held != time.Minute {
			t.Errorf("held for %v, want 1m", held)
		}
	})
}

// old is a backend that proves its holds by something older, as sessions do.
type old struct{ *memory.Backend }

func (b old) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := b.Backend.Acquire(ctx, r)
	if err == nil {
		h.Sent = h.Sent.Add(-h.Granted / 3)
	}
	return h, err
}

// How long a lock is held counts from when it was acquired, not from when it
// was last proven.
func TestHoldTimesCountFromTheAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		c := client(t, old{memory.New(s)}, dlock.Options{TTL: 30 * time.Second})
		start := time.Now()
		unlock(t, lock(t, c.Mutex("x", dlock.WithMinHold(time.Minute))))
		unlock(t, lock(t, client(t, memory.New(s), dlock.Options{}).Mutex("x")))
		if held := time.Since(start); held != time.Minute {
			t.Errorf("held for %v, want 1m", held)
		}
		start = time.Now()
		<-lock(t, c.Mutex("x", dlock.WithMaxHold(time.Minute))).Done()
		if held := time.Since(start); held != time.Minute {
			t.Errorf("held for %v, want 1m at most", held)
		}
	})
}

func TestCloseWaitsForMinHoldUntilItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		a, err := dlock.New(plain{memory.New(s)}, &dlock.Options{TTL: 2 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, lock(t, a.Mutex("x", dlock.WithMinHold(time.Hour))))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		is(t, a.Close(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("close took %v, want 1m", took)
		}
		if s.Names() != 0 {
			t.Error("the lock is still held")
		}
	})
}

// A program that is told to stop often has no other context left.
func TestCloseWithADoneContext(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.NewServer()
			b := memory.New(s)
			c, err := dlock.New(b, &dlock.Options{TTL: 10 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			lock(t, c.Mutex("x"))
			if !up {
				b.Cut()
			}
			start := time.Now()
			err = c.Close(done)
			switch took := time.Since(start); {
			case up && (err != nil || took != 0 || s.Names() != 0):
				t.Errorf("close took %v, left %d locks: %v", took, s.Names(), err)
			case !up && took > time.Second:
				t.Errorf("close took %v though its context was done", took)
			}
		})
	}
}

// A program may have made a context that never ends from one with a deadline, which it still says.
func TestContextThatSaysADeadlineAndNeverEnds(t *testing.T) {
	t.Run("endless", func(t *testing.T) {
		testDeadlineAndNoEnd(t, func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} })
	})
	t.Run("made from an endless one", func(t *testing.T) { testDeadlineAndNoEnd(t, context.WithCancel) })
}

// testDeadlineAndNoEnd uses contexts that a program has made from one that says a deadline and never ends.
func testDeadlineAndNoEnd(t *testing.T, from func(context.Context) (context.Context, context.CancelFunc)) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		b := memory.New(s)
		mine, other := client(t, b, dlock.Options{}), client(t, memory.New(s), dlock.Options{})
		limited, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		ctx, end := from(endless{limited})
		defer end()
		took := func(what string, most time.Duration, f func() error) {
			done := make(chan error, 1)
			go func() { done <- f() }()
			select {
			case err := <-done:
				if err == nil {
					t.Errorf("%s succeeded", what)
				}
			case <-time.After(most + time.Millisecond):
				t.Errorf("%s took more than %v", what, most)
				b.Heal()
				_ = mine.Close(t.Context())
				<-done
			}
		}
		held := lock(t, other.Mutex("x"))
		took("Lock with a WithMaxWait", time.Second, func() error {
			_, err := mine.Mutex("x", dlock.WithMaxWait(time.Second)).Lock(ctx)
			return err
		})
		unlock(t, held)
		l := lock(t, mine.Mutex("x"))
		lock(t, mine.Mutex("y"))
		b.Cut()
		took("Unlock", 3*time.Second, func() error { return l.Unlock(ctx) })
		took("Close", 6*time.Second, func() error { return mine.Close(ctx) })
	})
}

// A context may say a deadline that is still to come, and not end then: Unlock and Close end all the same.
func TestContextThatDoesNotEndByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.NewServer())
		c := client(t, b, dlock.Options{})
		lease := lock(t, c.Mutex("x"))
		lock(t, c.Mutex("y"))
		b.Cut()
		for _, call := range []struct {
			what string
			f    func(context.Context) error
			most time.Duration
		}{{"Unlock", lease.Unlock, 4 * time.Second}, {"Close", c.Close, 7 * time.Second}} {
			limited, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			ctx, end := context.WithCancel(endless{limited})
			began := time.Now()
			_ = call.f(ctx)
			if took := time.Since(began); took > call.most {
				t.Errorf("%s took %v", call.what, took)
			}
			end()
			cancel()
		}
	})
}

// endless is a context that never ends, and has the deadline of the one it was made from.
type endless struct{ context.Context }

func (endless) Done() <-chan struct{} { return nil }
func (endless) Err() error            { return nil }

// late is a context that is done from the second look at it.
type late struct {
	context.Context
	looks atomic.Int32
}

func (l *late) Err() error {
	if l.looks.Add(1) == 1 {
		return nil
	}
	return l.Context.Err()
}

// A context may end between the look that Close takes at it and the releases.
func TestCloseWithAContextThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.NewServer())
		c, err := dlock.New(b, &dlock.Options{TTL: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		lock(t, c.Mutex("x"))
		b.Cut()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		_ = c.Close(&late{Context: done})
		if took := time.Since(start); took != 0 {
			t.Errorf("close took %v though its context was done", took)
		}
	})
}

// Close ends the context that it is called with if that comes from a lease. The server is
// told all the same, until the deadline of the context or until what bounds it is done.
func TestCloseWithTheContextOfItsLease(t *testing.T) {
	for name, bound := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"no deadline": context.WithCancel,
		"a deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 2*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.NewServer()
				a, b := client(t, memory.New(s), dlock.Options{}), client(t, memory.New(s), dlock.Options{})
				under, cancel := bound(lock(t, a.Mutex("x")).Context(t.Context()))
				defer cancel()
				s.Freeze()
				time.AfterFunc(time.Second, s.Thaw)
				is(t, a.Close(under), nil)
				lease, err := b.Mutex("x").TryLock(t.Context())
				is(t, err, nil)
				is(t, lease.Unlock(t.Context()), nil)
			})
		})
	}
}

// Such a context still ends Close when its deadline passes.
func TestCloseWithTheContextOfItsLeaseThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.NewServer())
		c := client(t, b, dlock.Options{})
		under, cancel := context.WithTimeout(lock(t, c.Mutex("x")).Context(t.Context()), time.Second)
		defer cancel()
		b.Cut()
		start := time.Now()
		is(t, c.Close(under), dlock.ErrUnavailable)
		short(t, "Close", start, time.Second+300*time.Millisecond)
		b.Heal()
	})
}

// So it does when what the lease's context was made from ends, be it with another client's
// lease. What a caller has cut off from that goes on.
func TestCloseWithTheContextOfItsLeaseUnderOneThatEnds(t *testing.T) {
	for name, test := range map[string]struct {
		under func(t *testing.T, c, other *dlock.Client, parent context.Context) context.Context
		takes time.Duration
	}{
		"a lease": {takes: time.Second, under: func(t *testing.T, c, _ *dlock.Client, parent context.Context) context.Context {
			return lock(t, c.Mutex("x")).Context(parent)
		}},
		"two leases": {takes: time.Second, under: func(t *testing.T, c, _ *dlock.Client, parent context.Context) context.Context {
			return lock(t, c.Mutex("y")).Context(lock(t, c.Mutex("x")).Context(parent))
		}},
		"another client's lease": {takes: time.Second, under: func(t *testing.T, c, other *dlock.Client, parent context.Context) context.Context {
			foreign := lock(t, other.Mutex("x")).Context(context.WithoutCancel(parent))
			context.AfterFunc(parent, func() { is(t, other.Close(t.Context()), nil) })
			return lock(t, c.Mutex("x")).Context(foreign)
		}},
		"nothing": {takes: 5 * time.Second, under: func(t *testing.T, c, _ *dlock.Client, parent context.Context) context.Context {
			return context.WithoutCancel(lock(t, c.Mutex("x")).Context(parent))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(memory.NewServer())
				c := client(t, b, dlock.Options{})
				parent, cancel := context.WithCancel(t.Context())
				under := test.under(t, c, client(t, memory.New(memory.NewServer()), dlock.Options{}), parent)
				b.Cut()
				start := time.Now()
				time.AfterFunc(time.Second, cancel)
				is(t, c.Close(under), dlock.ErrUnavailable)
				if took := time.Since(start); took < test.takes {
					t.Errorf("Close took %v, want %v", took, test.takes)
				}
				short(t, "Close", start, test.takes+300*time.Millisecond)
				b.Heal()
			})
		})
	}
}

func TestDroppedLeaseIsLogged(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	}), nil))
	renewed := make(chan struct{}, 100)
	o := dlock.Options{TTL: 3 * time.Second, Logger: log}
	o.Hooks.Renewed = func(dlock.RenewedEvent) { renewed <- struct{}{} }
	c := client(t, memory.New(nil), o)
	kept, all := lock(t, c.Mutex("kept")), lock(t, c.Multi([]string{"kept all"}))
	lock(t, c.Mutex("dropped"))
	lock(t, c.Multi([]string{"dropped all"}))
	for range 4 {
		<-renewed
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		runtime.GC()
		mu.Lock()
		text := out.String()
		mu.Unlock()
		if strings.Count(text, "dropped without Unlock") >= 2 && strings.Contains(text, "dlock.lock.name=dropped") && strings.Contains(text, `dlock.lock.name="dropped all"`) {
			if strings.Contains(text, "kept") {
				t.Errorf("a lease in use was taken for dropped: %s", text)
			}
			_, err := c.Mutex("dropped").TryLock(t.Context())
			is(t, err, dlock.ErrHeld)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was logged: %q", text)
		}
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(all)
}

// A lease that was renewed keeps no closed client in memory, also if that refers to it by a hook.
func TestClosedClientIsCollected(t *testing.T) {
	collected := make(chan struct{})
	func() {
		type program struct {
			lease   *dlock.Lease
			renewed chan struct{}
		}
		p := &program{renewed: make(chan struct{}, 100)}
		o := dlock.Options{TTL: time.Second}
		o.Hooks.Renewed = func(dlock.RenewedEvent) { p.renewed <- struct{}{} }
		c, err := dlock.New(memory.New(nil), &o)
		if err != nil {
			t.Fatal(err)
		}
		p.lease = lock(t, c.Mutex("x"))
		<-p.renewed
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(p, func(int) { close(collected) }, 0)
	}()
	for deadline := time.Now().Add(30 * time.Second); ; {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("what the hook of a closed client refers to is still in memory")
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A lease whose context is in use is not dropped.
func TestLeaseOfALiveContextIsKept(t *testing.T) {
	logged := new(atomic.Bool)
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("dropped")) { // and not that a busy machine has renewed late
			logged.Store(true)
		}
		return len(p), nil
	}), nil))
	renewed := make(chan struct{}, 100)
	o := dlock.Options{TTL: 3 * time.Second, Logger: log}
	o.Hooks.Renewed = func(dlock.RenewedEvent) { renewed <- struct{}{} }
	c := client(t, memory.New(nil), o)
	m := c.Mutex("x")
	ctx := lock(t, m).Context(t.Context())
	for range 2 {
		<-renewed
		runtime.GC()
	}
	lease, ok := m.Held(ctx)
	if !ok || logged.Load() {
		t.Fatalf("held %v, logged %v", ok, logged.Load())
	}
	unlock(t, lease)
}

// The hook and the logger are slow to hear of one loss. Who holds another lock that
// is lost is told in time.
func TestSlowLostHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		ba := memory.New(s)
		a := client(t, ba, dlock.Options{TTL: 10 * time.Second, Hooks: dlock.Hooks{Lost: func(dlock.LostEvent) { time.Sleep(2 * time.Second) }}})
		b := client(t, memory.New(s), dlock.Options{})
		var work []context.Context
		for _, name := range []string{"x", "y"} {
			work = append(work, lock(t, a.Mutex(name)).Context(t.Context()))
		}
		ba.Cut()
		for i, name := range []string{"x", "y"} {
			next := lock(t, b.Mutex(name))
			if work[i].Err() == nil {
				t.Errorf("%s has another holder while the context of the last one lives", name)
			}
			unlock(t, next)
		}
		ba.Heal()
	})
}

// A hook may call the client.
func TestUnlockInTheLostHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leases []*dlock.Lease
		told := make(chan struct{}, 2)
		s := memory.NewServer()
		a := client(t, memory.New(s), dlock.Options{Hooks: dlock.Hooks{Lost: func(dlock.LostEvent) {
			for _, l := range leases {
				_ = l.Unlock(context.Background())
			}
			told <- struct{}{}
		}}})
		leases = append(leases, lock(t, a.Mutex("x")), lock(t, a.Mutex("y")))
		s.Wipe()
		<-told
	})
}

// The server's answer to Lock comes when the lease it grants is used up.
func TestAnswerThatIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{TTL: time.Second})
		ba.Cut()
		go func() {
			time.Sleep(2 * time.Second)
			ba.Heal()
		}()
		_, err := a.Mutex("x").Lock(t.Context())
		is(t, err, dlock.ErrUnavailable)
		synctest.Wait()
		unlock(t, lock(t, b.Mutex("x")))
	})
}

// An unlock that does not reach the server is repeated in the background.
func TestUnlockIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{TTL: time.Hour})
		lease := lock(t, a.Mutex("x"))
		ba.FailNext(errors.New("broken pipe"))
		is(t, lease.Unlock(t.Context()), dlock.ErrUnavailable)
		start := time.Now()
		unlock(t, lock(t, b.Mutex("x")))
		if took := time.Since(start); took > time.Second {
			t.Errorf("free after %v", took)
		}
	})
}

// A context that ends during an unlock ends the call, not the unlock.
func TestUnlockOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{TTL: time.Hour})
		lease := lock(t, a.Mutex("x"))
		ba.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		is(t, lease.Unlock(ctx), dlock.ErrUnavailable, context.DeadlineExceeded)
		ba.Heal()
		unlock(t, lock(t, b.Mutex("x")))
	})
}

func TestDowngradeUnsupported(t *testing.T) {
	c := client(t, plain{memory.New(nil)}, dlock.Options{})
	lease := lock(t, c.Mutex("x"))
	is(t, lease.Downgrade(t.Context()), dlock.ErrUnsupported)
	unlock(t, lease)
}

// plain hides the optional interfaces of a backend.
type plain struct{ backend.Backend }

// Without a Renewer a hold ends with its lease.
func TestBackendThatCannotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, plain{memory.New(nil)}, dlock.Options{TTL: 10 * time.Second})
		lease := lock(t, c.Mutex("x"))
		start := time.Now()
		<-lease.Done()
		is(t, lease.Err(), dlock.ErrLost)
		if lasted := time.Since(start); lasted != 9*time.Second {
			t.Errorf("lasted %v, want the TTL less the margin", lasted)
		}
	})
}

// A server that keeps the count of entries gets the right one.
func TestEntriesAreCountedOnTheServer(t *testing.T) {
	s := memory.NewServer()
	c := client(t, memory.New(s), dlock.Options{})
	m := c.Mutex("x")
	var leases []*dlock.Lease
	ctx := t.Context()
	for range 3 {
		lease, err := m.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
		ctx = lease.Context(ctx)
	}
	for want := 3; want > 0; want-- {
		if got := s.Entries("x"); got != want {
			t.Errorf("the server counts %d entries, want %d", got, want)
		}
		unlock(t, leases[want-1])
	}
}

// An entry whose request fails leaves the count as it was.
func TestEntryThatFails(t *testing.T) {
	s := memory.NewServer()
	ba := memory.New(s)
	c := client(t, ba, dlock.Options{})
	m := c.Mutex("x")
	outer := lock(t, m)
	ctx := outer.Context(t.Context())
	ba.FailNext(errors.New("broken pipe"))
	_, err := m.Lock(ctx)
	is(t, err, dlock.ErrUnavailable)
	inner, err := m.Lock(ctx) // the failed one does not stand in the way
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, inner)
	unlock(t, outer)
	if s.Names() != 0 {
		t.Error("the lock is still held")
	}
}

// Waiting for an entry ends when the outer lease does.
func TestEntryWaitsNoLongerThanTheOuterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, _ := pair(t, dlock.Options{})
		m := a.Mutex("x")
		outer := lock(t, m)
		ctx := context.WithoutCancel(outer.Context(t.Context()))
		inner, err := m.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := m.Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		unlock(t, outer)
		is(t, <-failed, dlock.ErrUnlocked)
		unlock(t, inner)
	})
}

func TestErrorText(t *testing.T) {
	s := memory.NewServer()
	m := client(t, memory.New(s), dlock.Options{}).Mutex("orders/42")
	lease := lock(t, m)
	wait := func(m *dlock.Mutex, want string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := m.Lock(ctx)
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		return err
	}
	wait(m, `dlock: lock "orders/42": lock is held: context deadline exceeded`+
		" (a caller of this client has it: with a context made by Lease.Context it enters the lock again)")
	err := wait(client(t, memory.New(s), dlock.Options{}).Mutex("orders/42"), `dlock: lock "orders/42": lock is held: context deadline exceeded`)
	var e *dlock.Error
	if !errors.As(err, &e) || e.Op != "lock" || e.Name != "orders/42" || e.Kind != dlock.ErrHeld {
		t.Errorf("got %+v", e)
	}
	unlock(t, lease)
	if got, want := lease.Unlock(t.Context()).Error(), `dlock: unlock "orders/42": lease is unlocked`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// odd is an error that wraps several, of which there are none.
type odd struct{}

func (odd) Error() string   { return "odd" }
func (odd) Unwrap() []error { return nil }

func TestCauseOfNoParts(t *testing.T) {
	c := client(t, memory.New(nil), dlock.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(odd{})
	_, err := c.Mutex("x").Lock(ctx)
	is(t, err, odd{})
}

func TestCloseOfNoClient(t *testing.T) {
	is(t, (*dlock.Client)(nil).Close(t.Context()), dlock.ErrInvalidConfig)
	is(t, new(dlock.Client).Close(t.Context()), dlock.ErrInvalidConfig)
}

// Until is when a lease ends unless it is renewed, and each renewal moves it on.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memory.New(memory.NewServer()), dlock.Options{TTL: 9 * time.Second})
		l := lock(t, c.Mutex("a"))
		first, start := l.Until(), time.Now()
		if d := first.Sub(start); d <= 6*time.Second || d >= 9*time.Second {
			t.Errorf("the lease ends in %v, want a little less than its TTL", d)
		}
		time.Sleep(5 * time.Second)
		if d := l.Until().Sub(first); d <= 0 {
			t.Errorf("a renewal moved the end by %v", d)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !l.Until().IsZero() || !(*dlock.Lease)(nil).Until().IsZero() {
			t.Error("a lease that is over ends in the future")
		}
	})
}

// A client with many locks ends them early: 4,000 of them 10 ms. Until says when, but for
// what the keeper adds for an eighth more locks.
func TestUntilOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{TTL: 100 * time.Millisecond})
		var lease *dlock.Lease
		for i := range 4000 {
			lease = lock(t, a.Mutex(strconv.Itoa(i)))
		}
		ba.Cut()
		until := lease.Until()
		<-lease.Done()
		if early := time.Until(until); early > 2*time.Millisecond {
			t.Errorf("the lease has ended %v before Until", early)
		}
		ba.Heal()
	})
}
