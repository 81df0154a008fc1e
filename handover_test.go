package dlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// queueUp has n goroutines of one client wait for l, in order. Each calls do
// with its lease.
func queueUp(t *testing.T, l dlock.Locker, n int, do func(*dlock.Lease)) (done *sync.WaitGroup) {
	t.Helper()
	done = new(sync.WaitGroup)
	for range n {
		done.Go(func() {
			lease, err := l.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			do(lease)
		})
		synctest.Wait()
	}
	return done
}

// While nobody else waits, the goroutines of a client pass a lock on without
// the server, each with a token of its own.
func TestHandOverAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{})
		first := lock(t, a.Mutex("x"))
		last, inside := first.Token(), 0
		done := queueUp(t, a.Mutex("x"), 100, func(lease *dlock.Lease) {
			if inside++; inside > 1 {
				t.Error("two inside")
			}
			if first.Err() == nil {
				t.Error("the first lease goes on")
			}
			if lease.Token() <= last {
				t.Errorf("token %d after %d", lease.Token(), last)
			}
			last = lease.Token()
			time.Sleep(time.Microsecond)
			inside--
			unlock(t, lease)
		})
		before := s.Ops()
		unlock(t, first)
		done.Wait()
		if n := s.Ops() - before; n != 1 {
			t.Errorf("%d requests, want the last release alone", n)
		}
		if next := lock(t, a.Mutex("x")); next.Token() <= last {
			t.Errorf("the server's token %d after %d", next.Token(), last)
		}
	})
}

// As soon as somebody of another client waits, a hold passes sixteen times and
// then goes to them.
func TestHandOverIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		first := lock(t, a.Mutex("x"))
		var turns []string
		done := queueUp(t, a.Mutex("x"), 40, func(lease *dlock.Lease) {
			turns = append(turns, "a")
			unlock(t, lease)
		})
		elsewhere := queueUp(t, b.Mutex("x"), 1, func(lease *dlock.Lease) {
			turns = append(turns, "b")
			unlock(t, lease)
		})
		unlock(t, first)
		done.Wait()
		elsewhere.Wait()
		for i, who := range turns {
			if who == "b" && i != 16 {
				t.Errorf("the other client came in after %d turns, want 16", i)
			}
		}
	})
}

// A slow owner does not keep others waiting sixteen times.
func TestHandOverIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		first := lock(t, a.Mutex("x"))
		done := queueUp(t, a.Mutex("x"), 5, func(lease *dlock.Lease) {
			time.Sleep(20 * time.Millisecond)
			unlock(t, lease)
		})
		var waited time.Duration
		start := time.Now()
		elsewhere := queueUp(t, b.Mutex("x"), 1, func(lease *dlock.Lease) {
			waited = time.Since(start)
			unlock(t, lease)
		})
		unlock(t, first)
		done.Wait()
		elsewhere.Wait()
		if waited != 20*time.Millisecond {
			t.Errorf("the other client waited for %v, want one turn of 20ms", waited)
		}
	})
}

// A loss ends the lease that the lock has been passed to, and those who wait
// ask the server.
func TestHandOverAndLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, _ := pair(t, dlock.Options{})
		first := lock(t, a.Mutex("x"))
		n, last := 0, first.Token()
		done := queueUp(t, a.Mutex("x"), 3, func(lease *dlock.Lease) {
			if lease.Token() <= last {
				t.Errorf("token %d after %d", lease.Token(), last)
			}
			last = lease.Token()
			if n++; n == 1 {
				s.Evict("x")
				<-lease.Done()
				is(t, lease.Unlock(t.Context()), dlock.ErrLost)
				return
			}
			unlock(t, lease)
		})
		unlock(t, first)
		done.Wait()
		if n != 3 {
			t.Errorf("%d turns, want 3", n)
		}
	})
}

// A hold that the server may forget soon is not passed on.
func TestHandOverNeedsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ba, a, _ := pair(t, dlock.Options{TTL: 30 * time.Second})
		first := lock(t, a.Mutex("x"))
		done := queueUp(t, a.Mutex("x"), 1, func(lease *dlock.Lease) { unlock(t, lease) })
		ba.Cut() // no renewal from here on
		time.Sleep(21 * time.Second)
		before := s.Ops()
		time.AfterFunc(time.Second, ba.Heal)
		unlock(t, first)
		done.Wait()
		if n := s.Ops() - before; n < 3 {
			t.Errorf("%d requests, want release, acquire and release", n)
		}
	})
}

// What the server keeps for one waiter does not serve one with other terms.
func TestHandOverNeedsTheSameTerms(t *testing.T) {
	for name, o := range map[string]dlock.Option{
		"TTL":     dlock.WithTTL(time.Minute),
		"MaxHold": dlock.WithMaxHold(time.Minute),
		"MinHold": dlock.WithMinHold(time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, a, _ := pair(t, dlock.Options{})
				first := lock(t, a.Mutex("x"))
				done := queueUp(t, a.Mutex("x", o), 1, func(lease *dlock.Lease) { unlock(t, lease) })
				before := s.Ops()
				unlock(t, first)
				done.Wait()
				time.Sleep(time.Second)
				if n := s.Ops() - before; n != 3 {
					t.Errorf("%d requests, want release, acquire and release", n)
				}
			})
		})
	}
}

// Readers and writers of one client keep their order.
func TestHandOverStopsAtAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, _ := pair(t, dlock.Options{})
		first := lock(t, a.Mutex("x"))
		var order []string
		note := func(s string) func(*dlock.Lease) {
			return func(lease *dlock.Lease) { order = append(order, s); unlock(t, lease) }
		}
		reader := queueUp(t, a.RWMutex("x").RLocker(), 1, note("reader"))
		writer := queueUp(t, a.Mutex("x"), 1, note("writer"))
		unlock(t, first)
		reader.Wait()
		writer.Wait()
		if order[0] != "reader" {
			t.Errorf("order %v", order)
		}
	})
}

// Both leases are reported, each with the time it was held for.
func TestHandOverCallsHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acquired []dlock.AcquiredEvent
		var released []dlock.ReleasedEvent
		o := dlock.Options{}
		o.Hooks.Acquired = func(_ context.Context, e dlock.AcquiredEvent) { acquired = append(acquired, e) }
		o.Hooks.Released = func(_ context.Context, e dlock.ReleasedEvent) { released = append(released, e) }
		_, _, a, _ := pair(t, o)
		first := lock(t, a.Mutex("x"))
		work := first.Context(t.Context())
		done := queueUp(t, a.Mutex("x"), 1, func(lease *dlock.Lease) {
			time.Sleep(2 * time.Second)
			unlock(t, lease)
		})
		time.Sleep(time.Second)
		unlock(t, first)
		is(t, context.Cause(work), dlock.ErrUnlocked)
		is(t, first.Unlock(t.Context()), dlock.ErrUnlocked)
		done.Wait()
		if len(acquired) != 2 || len(released) != 2 {
			t.Fatalf("%d acquired, %d released, want 2 of each", len(acquired), len(released))
		}
		for i := range 2 {
			if acquired[i].Token != released[i].Token {
				t.Errorf("token %d was released as %d", acquired[i].Token, released[i].Token)
			}
			if want := time.Duration(i+1) * time.Second; released[i].Age != want {
				t.Errorf("held for %v, want %v", released[i].Age, want)
			}
		}
	})
}

// Somebody who waits is told to the owner that the lock was passed to, too.
func TestHandOverTellsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{})
		first := lock(t, a.Mutex("x"))
		got := make(chan *dlock.Lease, 1)
		done := queueUp(t, a.Mutex("x"), 1, func(lease *dlock.Lease) { got <- lease })
		unlock(t, first)
		done.Wait()
		second := <-got
		select {
		case <-second.Wanted():
			t.Fatal("wanted, though nobody waits")
		default:
		}
		elsewhere := queueUp(t, b.Mutex("x"), 1, func(lease *dlock.Lease) { unlock(t, lease) })
		<-second.Wanted()
		unlock(t, second)
		elsewhere.Wait()
	})
}

// Who asks late whether a lease was wanted that has been passed on since hears that it was,
// and nothing of the next owner's.
func TestWantedAfterAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, _ := pair(t, dlock.Options{})
		first := lock(t, a.Mutex("x"))
		got := make(chan *dlock.Lease, 1)
		queueUp(t, a.Mutex("x"), 1, func(lease *dlock.Lease) { got <- lease })
		unlock(t, first)
		second := <-got
		select {
		case <-first.Wanted():
		default:
			t.Error("somebody has waited for the lock, and has it now")
		}
		select {
		case <-second.Wanted():
			t.Error("wanted, though nobody waits")
		default:
		}
		unlock(t, second)
	})
}

// Readers of one client share one hold, until somebody else waits.
func TestReadersShareAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, a, b := pair(t, dlock.Options{})
		readers := a.RWMutex("x").RLocker()
		first := lock(t, readers)
		before := s.Ops()
		second := lock(t, readers)
		unlock(t, first)
		third := lock(t, readers)
		if n := s.Ops() - before; n != 0 {
			t.Errorf("%d requests for readers beside a reader, want none", n)
		}
		if second.Token() != first.Token() || third.Token() != first.Token() {
			t.Error("readers of one phase have different tokens")
		}
		var order []string
		writer := queueUp(t, b.Mutex("x"), 1, func(lease *dlock.Lease) {
			order = append(order, "writer")
			unlock(t, lease)
		})
		time.Sleep(20 * time.Millisecond)
		late := queueUp(t, readers, 1, func(lease *dlock.Lease) {
			order = append(order, "reader")
			unlock(t, lease)
		})
		unlock(t, second)
		unlock(t, third)
		writer.Wait()
		late.Wait()
		if order[0] != "writer" {
			t.Errorf("order %v: a reader overtook the writer", order)
		}
	})
}

// A reader does not join a hold that the server may forget soon: it asks.
func TestReadersShareNeedsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{TTL: 30 * time.Second})
		readers := a.RWMutex("x").RLocker()
		first := lock(t, readers)
		ba.Cut() // no renewal from here on
		time.Sleep(19 * time.Second)
		start := time.Now()
		second := lock(t, readers)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("waited for %v with a third of the lease left", waited)
		}
		time.Sleep(2 * time.Second)
		time.AfterFunc(time.Second, ba.Heal)
		start = time.Now()
		third := lock(t, readers)
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("waited for %v, want 1s until the server answers", waited)
		}
		for _, lease := range []*dlock.Lease{first, second, third} {
			unlock(t, lease)
		}
	})
}

// Random locking, cancelling and losing by goroutines of two clients: never
// two inside, and tokens that grow.
func TestHandOverUnderFire(t *testing.T) {
	s := memory.NewServer()
	var inside atomic.Int32
	var last atomic.Uint64
	var all sync.WaitGroup
	for range 2 {
		c := client(t, memory.New(s), dlock.Options{})
		for g := range 8 {
			rnd := rand.New(rand.NewPCG(rand.Uint64(), uint64(g)))
			all.Go(func() {
				for range 2000 {
					ctx, cancel := context.WithCancel(t.Context())
					if rnd.IntN(4) == 0 {
						time.AfterFunc(time.Duration(rnd.IntN(50))*time.Microsecond, cancel)
					}
					lease, err := c.Mutex("x").Lock(ctx)
					cancel()
					if errors.Is(err, context.Canceled) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two inside")
					}
					if old := last.Swap(lease.Token()); old >= lease.Token() {
						t.Errorf("token %d after %d", lease.Token(), old)
					}
					inside.Add(-1)
					if err := lease.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if n := s.Names(); n != 0 {
		t.Errorf("%d names left on the server", n)
	}
}

// A stingy server grants a tenth of what it is asked for.
type stingy struct{ *memory.Backend }

func (b stingy) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := b.Backend.Acquire(ctx, r)
	if err == nil {
		h.Granted /= 10
	}
	return h, err
}

// Of a short lease a third is enough to be passed on, whatever was asked for.
func TestHandOverOfAShortGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		a := client(t, stingy{memory.New(s)}, dlock.Options{TTL: 30 * time.Second})
		first := lock(t, a.Mutex("x"))
		done := queueUp(t, a.Mutex("x"), 20, func(lease *dlock.Lease) { unlock(t, lease) })
		before := s.Ops()
		unlock(t, first)
		done.Wait()
		if n := s.Ops() - before; n != 1 {
			t.Errorf("%d requests, want the last release alone", n)
		}
	})
}
