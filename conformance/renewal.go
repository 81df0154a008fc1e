package conformance

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

func keepOutlivesTTL(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	s.pass(3 * s.TTL)
	s.alive(lease)
	s.held(b.Mutex(s.name))
	s.unlock(lease)
}

// keepStopsAfterUnlock counts what a client sends that holds nothing any more.
func keepStopsAfterUnlock(s *scenario) {
	if s.unable(s.Ops == nil, "Ops") {
		return
	}
	p := s.open()
	lease := s.locked(p.Mutex(s.name))
	s.pass(s.TTL / 2) // a renewal has been sent
	s.unlock(lease)
	before := s.ops()
	s.pass(s.TTL)
	s.must(s.ops()-before <= 1, "%d requests after unlock", s.ops()-before)
}

// keepMaxHold ends holds by their own bound, below the TTL and above.
func keepMaxHold(s *scenario) {
	a, b := s.open(), s.open()
	for _, ttl := range []time.Duration{20 * s.TTL, s.TTL} {
		hold := 2 * s.TTL
		if ttl > hold {
			hold = s.TTL
		}
		start := time.Now()
		lease := s.locked(a.Mutex(s.name, dlock.WithTTL(ttl), dlock.WithMaxHold(hold)))
		s.lost(lease)
		lasted := time.Since(start)
		s.must(lasted >= hold-hold/50, "a hold of at most %v ended after %v", hold, lasted)
		s.freed(b.Mutex(s.name))
		s.is(lease.Unlock(s.ctx), dlock.ErrLost)
	}
}

// keepMaxHoldRenewsNothing checks that a hold no longer than its TTL costs no
// request while it is held.
func keepMaxHoldRenewsNothing(s *scenario) {
	if s.unable(s.Ops == nil, "Ops") {
		return
	}
	p := s.open()
	hold := s.TTL * 8 / 10
	lease := s.locked(p.Mutex(s.name, dlock.WithTTL(s.TTL*20), dlock.WithMaxHold(hold*2)))
	before := s.ops()
	s.pass(hold)
	s.must(s.ops() == before, "%d requests during a hold that is never renewed", s.ops()-before)
	s.unlock(lease)
}

func keepMinHold(s *scenario) {
	a, b := s.open(), s.open()
	hold := 2 * s.TTL
	start := time.Now()
	lease := s.locked(a.Mutex(s.name, dlock.WithMinHold(hold)))
	s.unlock(lease)
	s.is(lease.Err(), dlock.ErrUnlocked)
	s.held(b.Mutex(s.name))
	s.freed(b.Mutex(s.name))
	s.must(time.Since(start) >= hold-hold/50, "free after %v, want %v at least", time.Since(start), hold)
}

// keepMinHoldAtClose closes a client that owes the rest of a hold, and one that is just
// being unlocked: the server keeps them for that, or Close waits.
func keepMinHoldAtClose(s *scenario) {
	a, b := s.open(), s.open()
	hold, late := s.TTL, s.sub(1)
	start := time.Now()
	s.unlock(s.locked(a.Mutex(s.name, dlock.WithMinHold(hold))))
	lease := s.locked(a.Mutex(late, dlock.WithMinHold(hold)))
	var unlocked sync.WaitGroup
	unlocked.Go(func() { _ = lease.Unlock(s.ctx) }) // or Close ends it first
	s.ok(a.Close(s.ctx))
	unlocked.Wait()
	for _, name := range []string{s.name, late} {
		s.freed(b.Mutex(name))
		s.must(time.Since(start) >= hold-hold/50, "%q is free after %v, want %v at least", name, time.Since(start), hold)
	}
}

// keepSurvivesBlip cuts the client off for so long that a renewal fails.
func keepSurvivesBlip(s *scenario) {
	renewed := make(chan struct{}, 1)
	a := s.openWith(dlock.Options{Hooks: dlock.Hooks{
		Renewed: func(dlock.RenewedEvent) {
			select {
			case renewed <- struct{}{}:
			default:
			}
		},
	}})
	b := s.open()
	if s.unable(a.Cut == nil, "Cut") {
		return
	}
	lease := s.locked(a.Mutex(s.name, dlock.WithTTL(3*s.TTL)))
	for range 2 {
		heal := a.Cut()
		s.pass(3 * s.TTL / 2)
		select {
		case <-renewed: // before the cut
		default:
		}
		heal()
		s.done("renewed", renewed)
		s.alive(lease)
	}
	s.held(b.Mutex(s.name))
	s.unlock(lease)
}

// keepTellsOfTheLease renews a hold until a renewal was in time by what it tells: at least
// half of the lease that the server has granted was left, or the hold has no lease.
func keepTellsOfTheLease(s *scenario) {
	if s.unable(!slices.Contains(s.Optional, "Renewer"), "Renewer") {
		return
	}
	renewed := make(chan dlock.RenewedEvent, 1000)
	p := s.openWith(dlock.Options{Hooks: dlock.Hooks{Renewed: func(e dlock.RenewedEvent) { renewed <- e }}})
	lease := s.locked(p.Mutex(s.name))
	for inTime := false; !inTime; {
		select {
		case e := <-renewed:
			s.must(e.Left >= 0 && e.Left <= e.TTL, "%v were left of a lease of %v", e.Left, e.TTL)
			inTime = e.Left >= e.TTL/2
		case <-s.ctx.Done():
			s.Fatal("no renewal was in time")
		}
	}
	s.unlock(lease)
}

// keepTenThousand holds very many locks of one client. It takes no goroutine for each.
func keepTenThousand(s *scenario) {
	n := min(10_000, cmp.Or(s.MostHolds, 10_000))
	const workers = 64
	var renewed sync.Map // names
	p := s.openWith(dlock.Options{TTL: max(30*time.Second, 3*s.TTL), Hooks: dlock.Hooks{
		Renewed: func(e dlock.RenewedEvent) { renewed.Store(e.Name, true) },
	}})
	each(workers, func(w int) { // as many connections as there will be, also those of a server in this process
		if lease, err := s.patiently(p.Mutex(s.sub(-1 - w))); err == nil {
			_ = lease.Unlock(s.ctx)
		}
	})
	before := runtime.NumGoroutine()
	leases := make([]*dlock.Lease, n)
	var failed atomic.Int64
	each(workers, func(w int) {
		for i := w; i < n; i += workers {
			lease, err := s.patiently(p.Mutex(s.sub(i)))
			if err != nil {
				if failed.Add(1) == 1 {
					s.Errorf("lock %d: %v", i, err)
				}
				return
			}
			leases[i] = lease
		}
	})
	s.must(failed.Load() == 0, "not all locks could be had")
	s.eventually("fewer than 200 goroutines for all of them", func() bool { return runtime.NumGoroutine()-before < 200 })
	renews := slices.Contains(s.Optional, "Renewer") // without it there is nothing to be renewed
	renewed.Clear()
	for i, lease := range leases {
		s.eventually("renewed", func() bool { _, ok := renewed.Load(s.sub(i)); return ok || !renews })
		s.alive(lease)
	}
	each(workers, func(w int) {
		for i := w; i < n; i += workers {
			if err := leases[i].Unlock(s.ctx); err != nil {
				s.Errorf("unlock %d: %v", i, err)
				return
			}
		}
	})
}

// keepBusyCPU holds a lock while every processor is busy. It may be lost, but
// a lease that says it lasts must be the only one.
func keepBusyCPU(s *scenario) {
	a, b := s.open(), s.open()
	stop := make(chan struct{})
	for range 4 * runtime.GOMAXPROCS(0) {
		go func() {
			for !isClosed(stop) {
			}
		}()
	}
	defer close(stop)
	end := time.Now().Add(s.TTL + 2*time.Second)
	for time.Now().Before(end) {
		lease, err := a.Mutex(s.name).Lock(s.ctx)
		if errors.Is(err, dlock.ErrUnavailable) {
			continue // the server is as busy, and that is the truth
		}
		s.ok(err)
		for range 20 {
			if time.Now().After(end) {
				break // a request may take long on such a machine
			}
			other, err := b.Mutex(s.name).TryLock(s.ctx)
			if err == nil {
				s.must(lease.Err() != nil, "two leases last at once")
				_ = other.Unlock(s.ctx)
				break
			}
		}
		_ = lease.Unlock(s.ctx)
	}
}

// keepCancelledParent cancels the context that the work runs under: the lock
// goes on.
func keepCancelledParent(s *scenario) {
	lease := s.locked(s.open().Mutex(s.name))
	parent, cancel := context.WithCancel(s.ctx)
	work := lease.Context(parent)
	cancel()
	s.done("work ended", work.Done())
	s.alive(lease)
	s.unlock(lease)
}

// keepWholeLease checks that nobody else gets in before a lease ends that is not
// renewed.
func keepWholeLease(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name, dlock.WithMaxHold(s.TTL)))
	for lease.Err() == nil {
		other, err := b.Mutex(s.name).TryLock(s.ctx)
		if err == nil {
			s.must(lease.Err() != nil, "another has the lock while the lease lasts")
			s.unlock(other)
			break
		}
		s.must(errors.Is(err, dlock.ErrHeld) || errors.Is(err, dlock.ErrUnavailable), "try: %v", err)
		s.pass(s.TTL / 50)
	}
	s.lost(lease)
	s.freed(b.Mutex(s.name))
}

// keepManyTTLs takes locks with many different leases, one after the other: they
// share what connections there are.
func keepManyTTLs(s *scenario) {
	if s.unable(s.Conns == nil, "Conns") {
		return
	}
	p := s.open()
	s.free(p.Mutex(s.name))
	before := s.Conns()
	for i := range 40 {
		s.unlock(s.locked(p.Mutex(s.sub(i), dlock.WithTTL(s.TTL+time.Duration(i)*137*time.Millisecond))))
	}
	s.must(s.Conns()-before <= 8, "40 different leases took %d connections more", s.Conns()-before)
}
