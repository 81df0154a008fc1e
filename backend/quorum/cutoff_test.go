package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// cutOff has clients wait for x, and then reach no other node than reaches says. They give up by stop.
func (s nodes) cutOff(t *testing.T, number int, reaches func(i int) int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	for i := range number {
		c := s.open(t, nil)
		c.unlock(c.lock("y"))
		waiters.Go(func() {
			is(t, dlock.Do(ctx, c.Mutex("x"), nothing), context.Canceled)
			c.heal()
		})
		synctest.Wait()
		for node, link := range c.links {
			if node != reaches(i) {
				link.Cut()
			}
		}
	}
	return func() {
		cancel()
		waiters.Wait()
	}
}

// Clients that are cut off from two of three nodes wait, most of them at the front, which lets in one
// after the other. They do not keep a free lock from who reaches all nodes.
func TestCutOffWaitersKeepNoFreeLock(t *testing.T) {
	reach := map[string]func(i, front int) int{
		"all reach the front":  func(_, front int) int { return front },
		"each reaches another": func(i, _ int) int { return i % 3 },
	}
	for what, reaches := range reach {
		for _, number := range []int{3, 8} {
			t.Run(fmt.Sprint(what, number), func(t *testing.T) {
				ripe(t, 3, func(t *testing.T, s nodes) {
					front := s.front("x")
					holder, other := s.open(t, nil), s.open(t, nil)
					l := holder.lock("x")
					stop := s.cutOff(t, number, func(i int) int { return reaches(i, front) })
					time.Sleep(time.Second)
					holder.unlock(l)
					free := time.Now()
					soon, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					ok(t, dlock.Do(soon, other.Mutex("x"), nothing))
					if took := time.Since(free); took > 2500*time.Millisecond {
						t.Errorf("a free lock was taken after %v", took)
					}
					refused := 0
					for range 40 {
						if l, err := other.try("x"); err == nil {
							other.unlock(l)
						} else {
							is(t, err, dlock.ErrHeld)
							refused++
						}
						time.Sleep(250 * time.Millisecond)
					}
					if refused > 4 {
						t.Errorf("%d of 40 tries of a free lock are refused", refused)
					}
					stop()
				})
			})
		}
	}
}

// Who was cut off, and so waits in no queue, queues again once enough nodes answer.
func TestCutOffWaiterComesBack(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		front := s.front("x")
		holder, waiter := s.open(t, nil), s.open(t, nil)
		waiter.unlock(waiter.lock("y"))
		l := holder.lock("x")
		got := make(chan error)
		go func() { got <- dlock.Do(t.Context(), waiter.Mutex("x"), nothing) }()
		synctest.Wait()
		for node, link := range waiter.links {
			if node != front {
				link.Cut()
			}
		}
		holder.unlock(l)
		time.Sleep(time.Minute)
		if n := s[front].Waiting("x"); n != 0 {
			t.Errorf("%d wait at the front", n)
		}
		waiter.heal()
		back := time.Now()
		ok(t, <-got)
		if took := time.Since(back); took > time.Second {
			t.Errorf("it has the lock %v after it is back", took)
		}
	})
}

// A pinged node counts pings, which take a millisecond.
type pinged struct {
	*memory.Backend
	pings *atomic.Int64
}

func (p pinged) Ping(ctx context.Context) (string, error) {
	p.pings.Add(1)
	time.Sleep(time.Millisecond)
	return p.Backend.Ping(ctx)
}

// overPinged is a client of such nodes.
func (s nodes) overPinged(t *testing.T, pings *atomic.Int64) *dlock.Client {
	var all []backend.Backend
	for i := range s {
		all = append(all, pinged{memory.New(s[i]), pings})
	}
	return over(t, all, nil)
}

// However many wait, a node that answers is pinged now and then.
func TestPingsOfManyWaiters(t *testing.T) {
	const number = 1000
	ripe(t, 3, func(t *testing.T, s nodes) {
		holder := s.open(t, nil)
		var leases []*dlock.Lease
		for i := range number {
			leases = append(leases, holder.lock(fmt.Sprint("x", i)))
		}
		var pings atomic.Int64
		c := s.overPinged(t, &pings)
		ctx, stop := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		for i := range number {
			time.Sleep(3 * time.Millisecond)
			waiters.Go(func() { is(t, dlock.Do(ctx, c.Mutex(fmt.Sprint("x", i)), nothing), context.Canceled) })
		}
		time.Sleep(time.Minute)
		before := pings.Load()
		time.Sleep(time.Minute)
		if n := pings.Load() - before; n > 60*3 {
			t.Errorf("%d pings of three nodes in a minute", n)
		}
		stop()
		waiters.Wait()
		for _, l := range leases {
			holder.unlock(l)
		}
	})
}

// Who waits at the front finds out soon that it is gone, also where the client knows it to be silent from
// another call, and however long a lease lasts: the lock comes free at the others.
func TestFrontIsSilentForAnotherCall(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		front, holder := s.front("x"), s.open(t, nil)
		l := holder.lock("x")
		var pings atomic.Int64
		var links []*memory.Backend
		var all []backend.Backend
		for i := range s {
			links = append(links, memory.New(s[i]))
			all = append(all, pinged{links[i], &pings})
		}
		c := over(t, all, nil)
		ok(t, dlock.Do(t.Context(), c.Mutex("y"), nothing))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan time.Time)
		go func() {
			ok(t, dlock.Do(ctx, c.Mutex("x"), nothing))
			got <- time.Now()
		}()
		time.Sleep(10 * time.Second)
		for last := pings.Load(); pings.Load() == last; { // it pings the front again in a second or so
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond) // it has the answers
		links[front].Cut()
		holder.links[front].Cut()
		ok(t, dlock.Do(t.Context(), c.Mutex(s.nameWithFront(front)), nothing)) // it waits for the front for a moment
		free := time.Now()
		go holder.unlock(l)
		if took := (<-got).Sub(free); took > 2*time.Second {
			t.Errorf("a free lock was taken after %v", took)
		}
		links[front].Heal()
		holder.heal()
	})
}
