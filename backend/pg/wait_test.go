package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// TestWriterBesideLongReaders has readers who hold the lock for longer than a slice
// and come back at once. A writer waits for those who were there before, not for
// those who came later, in whatever slice.
func TestWriterBesideLongReaders(t *testing.T) {
	t.Parallel()
	const slice, hold = 200 * time.Millisecond, 350 * time.Millisecond
	o := Options{Slice: slice}
	stop := make(chan struct{})
	var reads atomic.Int64
	var all sync.WaitGroup
	for i := range 3 {
		p := newPeer(t, shared.Addr(), o, 10*time.Second)
		all.Go(func() {
			for first := true; ; first = false {
				select {
				case <-stop:
					return
				default:
				}
				lease, err := p.RWMutex(nameOf(t)).RLock(testContext(t))
				if err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
				if first {
					time.Sleep(time.Duration(i) * hold / 3)
				}
				time.Sleep(hold)
				unlock(t, lease)
			}
		})
	}
	eventually(t, "reads", func() bool { return reads.Load() > 3 })
	w := newPeer(t, shared.Addr(), o, 10*time.Second)
	for range 3 {
		before := reads.Load()
		ctx, cancel := context.WithTimeout(testContext(t), 30*time.Second)
		lease, err := w.RWMutex(nameOf(t)).Lock(ctx)
		cancel()
		if err != nil {
			t.Fatalf("a writer beside readers: %v", err)
		}
		if n := reads.Load() - before; n > 6 {
			t.Errorf("%d reads while a writer waited", n)
		}
		unlock(t, lease)
	}
	close(stop)
	all.Wait()
}

// TestOrderAcrossSlices has a lock be held for many slices. Whoever came first is
// served first, readers too.
func TestOrderAcrossSlices(t *testing.T) {
	const n, slice = 5, 250 * time.Millisecond
	holder := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	a := admin(t, shared.Addr())
	held := lock(t, holder.Mutex(nameOf(t)))
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range n {
		p := newPeer(t, shared.Addr(), Options{Slice: slice}, 10*time.Second)
		all.Go(func() {
			m := p.RWMutex(nameOf(t))
			take := m.Lock
			if i == n-2 {
				take = m.RLock
			}
			lease, err := take(testContext(t))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			unlock(t, lease)
		})
		eventually(t, "queued", func() bool { return inLocks(t, a, p.backend, nameOf(t), false) == i+1 })
		time.Sleep(slice / n)
	}
	time.Sleep(3 * slice)
	unlock(t, held)
	all.Wait()
	if !slices.IsSorted(order) {
		t.Errorf("served in the order %v", order)
	}
	eventually(t, "no claims are left", func() bool {
		return number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND objid <> 0") == 0
	})
}

// TestSlotsCountWaiters takes over as many locks as may be waited for at once, and
// keeps them. That is in no way of the next wait, even where others come often.
func TestSlotsCountWaiters(t *testing.T) {
	t.Parallel()
	for _, maxConns := range []int{0, 4} { // with 4, the last wait is that of a listener
		t.Run(fmt.Sprint(maxConns), func(t *testing.T) {
			holder := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
			p := newPeer(t, shared.Addr(), Options{MaxParked: 2, MaxConns: maxConns, Slice: 300 * time.Millisecond}, 10*time.Second)
			for i := range 2 {
				name := nameOf(t, fmt.Sprint(i))
				held := lock(t, holder.Mutex(name))
				next := queue(t, shared.Addr(), p, name)
				unlock(t, held)
				kept := receive(t, "the lock", next)
				defer unlock(t, kept)
			}
			eventually(t, "who has a lock does not wait", func() bool {
				p.backend.mu.Lock()
				defer p.backend.mu.Unlock()
				return p.backend.slotsTaken == 0
			})
			hot := nameOf(t, "hot")
			stop := make(chan struct{})
			var all sync.WaitGroup
			defer all.Wait()
			defer close(stop)
			for range 4 {
				rival := newPeer(t, shared.Addr(), Options{Slice: 300 * time.Millisecond}, 10*time.Second)
				all.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						lease := lock(t, rival.Mutex(hot))
						time.Sleep(2 * time.Millisecond)
						unlock(t, lease)
					}
				})
			}
			ctx, cancel := context.WithTimeout(testContext(t), 20*time.Second)
			defer cancel()
			for range 3 {
				lease, err := p.Mutex(hot).Lock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, lease)
			}
		})
	}
}

// TestCancelledWaiterIsGone has a waiter give up, then the holder unlock: a third finds
// the lock free.
func TestCancelledWaiterIsGone(t *testing.T) {
	t.Parallel()
	for _, slice := range []time.Duration{0, 50 * time.Millisecond} { // with a claim, too
		holder, p, third := newPeer(t, shared.Addr(), Options{}, 10*time.Second),
			newPeer(t, shared.Addr(), Options{Slice: slice}, 10*time.Second), newPeer(t, shared.Addr(), Options{}, 10*time.Second)
		for i := range 40 {
			held := lock(t, holder.Mutex(nameOf(t)))
			ctx, cancel := context.WithTimeout(testContext(t), time.Duration(20+i%3*30)*time.Millisecond)
			// A busy machine may not have asked by then.
			if _, err := p.Mutex(nameOf(t)).Lock(ctx); !errors.Is(err, dlock.ErrHeld) && !errors.Is(err, dlock.ErrUnavailable) {
				t.Errorf("%v", err)
			}
			end, _ := ctx.Deadline()
			starved := time.Since(end) > leaveTimeout/2
			cancel()
			unlock(t, held)
			if starved {
				works(t, third.Mutex(nameOf(t)))
				continue
			}
			lease, err := third.Mutex(nameOf(t)).TryLock(testContext(t))
			if err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			unlock(t, lease)
		}
	}
}

// TestTurnsAtADistance has two clients, who are far from the server, take a lock in turn.
// The lock is the next one's after about a round trip: nobody asks meanwhile whether it is
// held, and each turn costs two requests, as near by.
func TestTurnsAtADistance(t *testing.T) {
	const oneWay, turns = 15 * time.Millisecond, 40
	clients := [2]*peer{}
	for i := range clients {
		clients[i] = newPeer(t, shared.Addr(), Options{}, 10*time.Second)
		clients[i].proxy.Delay(faultnet.BothWays, oneWay, 0)
	}
	take := func(n int) {
		var all sync.WaitGroup
		for _, p := range clients {
			all.Go(func() {
				for range n {
					works(t, p.Mutex(nameOf(t)))
				}
			})
		}
		all.Wait()
	}
	eventually(t, "each has waited, and made a connection for that", func() bool {
		take(5)
		return clients[0].backend.connections() == 2 && clients[1].backend.connections() == 2
	})
	before := clients[0].proxy.Stats().Requests + clients[1].proxy.Stats().Requests
	take(turns)
	sent := clients[0].proxy.Stats().Requests + clients[1].proxy.Stats().Requests - before
	t.Logf("%d requests for %d turns", sent, 2*turns)
	if most := int64(2 * turns * 9 / 4); sent > most {
		t.Errorf("%d requests for %d turns, want %d at most", sent, 2*turns, most)
	}
}

// TestOwnContextOnly has readers share what one of them asks, who gives up on a server
// that is slow to connect: the others get their lock.
func TestOwnContextOnly(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	for _, s := range p.backend.alive() {
		s.kill(errSilent)
	}
	eventually(t, "no connection", func() bool { return p.backend.connections() == 0 })
	p.proxy.Blackhole(faultnet.BothWays)
	short, cancel := context.WithCancel(testContext(t))
	defer cancel()
	r := requestFor(nameOf(t))
	r.Mode = 2
	r.Wait = false
	type answer struct {
		hold *backend.Hold
		err  error
	}
	ask := func(ctx context.Context, asking int) <-chan answer {
		c := make(chan answer, 1)
		go func() {
			h, err := p.backend.Acquire(ctx, r)
			c <- answer{h, err}
		}()
		eventually(t, "asked", func() bool {
			p.backend.mu.Lock()
			defer p.backend.mu.Unlock()
			l := p.backend.locks[p.backend.key(r.Name)]
			return l != nil && l.attempt != nil && l.attempt.requests == asking
		})
		return c
	}
	first, second := ask(short, 1), ask(testContext(t), 2)
	cancel()
	if got := receive(t, "the end of the call", first); !errors.Is(got.err, dlock.ErrUnavailable) {
		t.Errorf("%v", got.err)
	}
	p.proxy.Restore(faultnet.BothWays)
	got := receive(t, "the lock", second)
	if got.err != nil {
		t.Fatalf("ended by another's context: %v", got.err)
	}
	must(t, p.backend.Release(testContext(t), got.hold))
}

// TestWordSurvivesAFailure has the lock be given back while everything else that the
// holder's client asks for fails: who listens hears of it.
func TestWordSurvivesAFailure(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Postgres{})
	ad := admin(t, s.Addr())
	q := newPeer(t, s.Addr(), Options{MaxConns: 2}, 10*time.Second)
	execute(t, ad, "CREATE ROLE app LOGIN; GRANT USAGE, UPDATE ON SEQUENCE dlock_fence, dlock_fence_floor TO app")
	p, err := open1(t, "postgres://app@"+s.Addr()+"/postgres?sslmode=disable")
	must(t, err)
	for round := range 4 {
		name := nameOf(t, fmt.Sprint(round))
		held, err := p.Mutex(name, dlock.WithTTL(10*time.Second)).Lock(testContext(t))
		must(t, err)
		next := locking(t, q.Mutex(name))
		eventually(t, "somebody listens", func() bool {
			q.backend.mu.Lock()
			defer q.backend.mu.Unlock()
			return len(q.backend.listeners) == 1 && q.backend.listeners[0].foundHeld
		})
		execute(t, ad, "REVOKE ALL ON SEQUENCE dlock_fence FROM app")
		stop := make(chan struct{})
		var failures atomic.Int64
		var all sync.WaitGroup
		for g := range 16 {
			all.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := p.Mutex(nameOf(t, "other", fmt.Sprint(g, i)), dlock.WithTTL(10*time.Second)).TryLock(testContext(t)); err != nil {
						failures.Add(1)
					}
				}
			})
		}
		eventually(t, "failures", func() bool { return failures.Load() > 50 })
		must(t, held.Unlock(testContext(t)))
		unlocked := time.Now()
		unlock(t, receive(t, "the lock", next))
		if late := time.Since(unlocked); late > 3*time.Second {
			t.Errorf("the word came after %v", late)
		}
		close(stop)
		all.Wait()
		execute(t, ad, "GRANT USAGE, UPDATE ON SEQUENCE dlock_fence TO app")
	}
}

// TestLongFirstWait waits at once, as for a lock that was lately found held, for longer
// than a server may be silent. It is known to be there, and a silent one is found out.
func TestLongFirstWait(t *testing.T) {
	t.Parallel()
	holder, p := newPeer(t, shared.Addr(), Options{}, 10*time.Minute), newPeer(t, shared.Addr(), Options{}, 10*time.Minute)
	held := lock(t, holder.Mutex(nameOf(t)))
	next := queue(t, shared.Addr(), p, nameOf(t))
	unlock(t, held)
	unlock(t, receive(t, "the lock", next))
	held = lock(t, holder.Mutex(nameOf(t)))
	ctx, cancel := context.WithTimeout(testContext(t), backend.FirstAnswer+time.Second)
	defer cancel()
	began := time.Now()
	if _, err := p.Mutex(nameOf(t)).Lock(ctx); !errors.Is(err, dlock.ErrHeld) || time.Since(began) < backend.FirstAnswer {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	p.proxy.Blackhole(faultnet.BothWays)
	began = time.Now()
	if _, err := p.Mutex(nameOf(t)).Lock(testContext(t)); !errors.Is(err, dlock.ErrUnavailable) || time.Since(began) > 3*backend.FirstAnswer {
		t.Errorf("a silent server, after %v: %v", time.Since(began), err)
	}
	p.proxy.Restore(faultnet.BothWays)
	unlock(t, held)
}

// TestHeldIsTheServersWord has a call wait at once, as for a lock that was lately found
// held, for a server that is silent. Who comes after it is not told that the lock is
// held; with a server that answers, that is soon known.
func TestHeldIsTheServersWord(t *testing.T) {
	t.Parallel()
	holder, p := newPeer(t, shared.Addr(), Options{}, 10*time.Minute), newPeer(t, shared.Addr(), Options{}, 10*time.Minute)
	hot := func() <-chan *dlock.Lease {
		p.backend.mu.Lock()
		p.backend.noteContention(p.backend.key(nameOf(t)))
		p.backend.mu.Unlock()
		next := locking(t, p.Mutex(nameOf(t)))
		eventually(t, "a wait", func() bool {
			p.backend.mu.Lock()
			defer p.backend.mu.Unlock()
			return p.backend.slotsTaken == 1
		})
		return next
	}
	held := lock(t, holder.Mutex(nameOf(t)))
	first := queue(t, shared.Addr(), p, nameOf(t))
	unlock(t, held)
	unlock(t, receive(t, "the lock", first))

	p.proxy.Blackhole(faultnet.BothWays)
	next := hot()
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	if _, err := p.Mutex(nameOf(t)).TryLock(ctx); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("behind a call that a silent server does not answer: %v", err)
	}
	p.proxy.Restore(faultnet.BothWays)
	unlock(t, receive(t, "the lock", next))

	held = lock(t, holder.Mutex(nameOf(t)))
	next = hot()
	if _, err := p.Mutex(nameOf(t)).TryLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("behind a call that waits: %v", err)
	}
	unlock(t, held)
	unlock(t, receive(t, "the lock", next))
}

// TestHeldByNobody has a call wait at once, as for a lock that was lately found held, and get
// the lock, while somebody else holds the sequence: it has no token. Who comes after it is
// not told that the lock is held.
func TestHeldByNobody(t *testing.T) {
	t.Parallel()
	a := admin(t, shared.Addr())
	execute(t, a, "DROP SCHEMA IF EXISTS stuck CASCADE", "CREATE SCHEMA stuck")
	holder := newPeer(t, shared.Addr(), Options{Schema: "stuck"}, 10*time.Minute)
	p := newPeer(t, shared.Addr(), Options{Schema: "stuck", Slice: time.Minute}, 10*time.Minute)
	held := lock(t, holder.Mutex(nameOf(t)))
	first := queue(t, shared.Addr(), p, nameOf(t))
	unlock(t, held)
	unlock(t, receive(t, "the lock", first))

	execute(t, a, "BEGIN", "ALTER SEQUENCE stuck.dlock_fence OWNED BY NONE")
	next := locking(t, p.Mutex(nameOf(t)))
	eventually(t, "a wait", func() bool {
		p.backend.mu.Lock()
		defer p.backend.mu.Unlock()
		return p.backend.slotsTaken == 1
	})
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	if _, err := p.Mutex(nameOf(t)).TryLock(ctx); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("behind a call that has no token yet: %v", err)
	}
	execute(t, a, "ROLLBACK")
	unlock(t, receive(t, "the lock", next))
}

// TestCancelOvertakesTheStatement has a wait be taken back before the server has begun with
// it: what comes ahead of a statement cancels nothing, and whoever gives up would wait for a
// slice all the same.
func TestCancelOvertakesTheStatement(t *testing.T) {
	t.Parallel()
	held := lock(t, newPeer(t, shared.Addr(), Options{}, limit).Mutex(nameOf(t)))
	b := newPeer(t, shared.Addr(), Options{Slice: time.Minute}, limit).backend
	s, err := b.takeForWait(testContext(t), limit)
	must(t, err)
	q := &query{session: s, call: newCall(lockExclusive, b.key(nameOf(t)))}
	over := make(chan struct{})
	go func() { defer close(over); q.cancelWait(testContext(t), limit) }()
	time.Sleep(50 * time.Millisecond)
	s.start(q.call)
	select {
	case <-over:
		if <-q.call.done; q.call.err == nil {
			t.Error("the wait was granted")
		}
	case <-time.After(limit / 6):
		t.Error("nobody has cancelled the wait")
	}
	unlock(t, held)
	b.stopUsing(s)
}
