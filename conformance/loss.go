package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func lossEvicted(s *scenario) {
	var events sync.Map
	p := s.openWith(dlock.Options{Hooks: dlock.Hooks{Lost: func(e dlock.LostEvent) { events.Store(e.Name, e) }}})
	lease := s.locked(p.Mutex(s.name))
	work := lease.Context(s.ctx)
	s.Evict(s.TB, s.name)
	s.lost(lease)
	s.done("context ended", work.Done())
	s.is(context.Cause(work), dlock.ErrLost)
	s.must(!errors.Is(lease.Err(), dlock.ErrBroken), "nobody has called Break: %v", lease.Err())
	s.is(lease.Unlock(s.ctx), dlock.ErrLost)
	s.eventually("the hook is called", func() bool { _, ok := events.Load(s.name); return ok })
	e, _ := events.Load(s.name)
	s.is(e.(dlock.LostEvent).Err, dlock.ErrLost)
}

// lossUnobserved has a backend hold without an Observer, which package backend allows,
// while somebody waits for the lock and when it is lost.
func lossUnobserved(s *scenario) {
	b := s.open().Backend
	h, err := b.Acquire(s.ctx, backend.Request{
		Name: s.name, ID: backend.ID{Client: identity(), Seq: 1}, Mode: backend.Exclusive, TTL: s.TTL,
	})
	s.ok(err)
	renew := func() (err error) { // the backend's goroutine reports, and cannot end the test
		if r, ok := b.(backend.Renewer); ok {
			r.Renew(s.ctx, []*backend.Hold{h}, func(_ *backend.Hold, e error) { err = e })
		}
		return err
	}
	next := s.queue(s.open().Mutex(s.name), s.name, 1)
	for range 8 { // a backend may take a third of the TTL to say that somebody waits
		s.pass(s.TTL / 8)
		s.ok(renew())
	}
	s.Evict(s.TB, s.name)
	_ = renew()
	s.unlock(next.granted())
	_ = b.Release(s.ctx, h) // lost, as far as it is known
}

// lossCut cuts the holder off: it learns of the loss by its own clock.
func lossCut(s *scenario) {
	p := s.open()
	if !s.Leased {
		s.neverWithout(p)
		return
	}
	lease := s.locked(p.Mutex(s.name))
	heal := p.Cut()
	defer heal()
	start := time.Now()
	s.lost(lease)
	s.Logf("lost %v after the cut, TTL %v", time.Since(start), s.TTL)
	done := make(chan error, 1)
	go func() { done <- lease.Unlock(s.ctx) }()
	select {
	case err := <-done:
		s.is(err, dlock.ErrLost)
	case <-s.ctx.Done():
		s.Fatal("unlock hangs")
	}
}

// neverWithout checks the opposite for a backend without leases: nobody gets
// in before the holder is out, however long that takes.
func (s *scenario) neverWithout(p *Peer) {
	lease := s.locked(p.Mutex(s.name))
	next := s.queue(s.open().Mutex(s.name), s.name, 1)
	s.pass(3 * s.TTL)
	next.waits("a held lock was granted")
	s.alive(lease)
	s.unlock(lease)
	s.unlock(next.granted())
}

// lossBeforeNextHolder cuts the holder off while another waits, again and
// again, and compares on one clock when the one knew and the other had it.
func lossBeforeNextHolder(s *scenario) {
	if !s.Leased {
		s.neverWithout(s.open())
		return
	}
	const rounds = 20
	peers := s.opens(2 * rounds)
	each(rounds, func(i int) {
		a, b := peers[2*i], peers[2*i+1]
		name := s.sub(i)
		lease, err := a.Mutex(name).Lock(s.ctx)
		if err != nil {
			s.Errorf("lock: %v", err)
			return
		}
		knew := make(chan time.Time, 1)
		go func() {
			<-lease.Done()
			knew <- time.Now()
		}()
		heal := a.Cut()
		defer heal()
		next, err := b.Mutex(name).Lock(s.ctx)
		has := time.Now()
		if err != nil {
			s.Errorf("next: %v", err)
			return
		}
		if known := <-knew; known.After(has) {
			s.Errorf("the holder knew %v after the next had the lock", known.Sub(has))
		}
		_ = next.Unlock(s.ctx) // on a machine that stands still it may be lost by now
	})
}

func lossAllLocksOfClient(s *scenario) {
	p, other := s.open(), s.open()
	var leases []*dlock.Lease
	for i := range 10 {
		leases = append(leases, s.locked(p.Mutex(s.sub(i))))
	}
	safe := s.locked(other.Mutex(s.name))
	if s.Leased {
		heal := p.Cut()
		defer heal()
	} else {
		for i := range 10 {
			s.Evict(s.TB, s.sub(i))
		}
	}
	for _, lease := range leases {
		s.lost(lease)
	}
	s.alive(safe)
	s.unlock(safe)
}

func lossNotOnUnlock(s *scenario) {
	p := s.openWith(dlock.Options{Hooks: dlock.Hooks{Lost: func(e dlock.LostEvent) { s.Errorf("lost: %v", e.Err) }}})
	for range 50 {
		lease := s.locked(p.Mutex(s.name))
		work := lease.Context(s.ctx)
		s.unlock(lease)
		s.done("context ended", work.Done())
		s.is(context.Cause(work), dlock.ErrUnlocked)
		s.not(context.Cause(work), dlock.ErrLost)
	}
	s.pass(s.TTL)
}

func lossAlreadyLost(s *scenario) {
	lease := s.locked(s.open().Mutex(s.name))
	s.Evict(s.TB, s.name)
	s.lost(lease)
	late := lease.Context(s.ctx)
	s.done("context ended", late.Done())
	s.is(context.Cause(late), dlock.ErrLost)
}

// lossWhileWaiting cuts a waiter off until the server has forgotten it. It
// gets in again in its turn or fails; it never gets in beside another.
func lossWhileWaiting(s *scenario) {
	s.lossWhileWaiting(func(p *Peer, name string) dlock.Locker { return p.Mutex(name) }, true)
}

func lossWhileWaitingReader(s *scenario) {
	s.needs(Readers)
	s.lossWhileWaiting(func(p *Peer, name string) dlock.Locker { return p.RWMutex(name).RLocker() }, false)
}

func (s *scenario) lossWhileWaiting(of func(*Peer, string) dlock.Locker, exclusive bool) {
	a, b := s.open(), s.open()
	if s.unable(b.Cut == nil, "Cut") {
		return
	}
	r := new(checker)
	lease := s.locked(a.Mutex(s.name))
	r.enter(lease, true)
	call := s.start(of(b, s.name))
	s.queued(s.name, 1)
	heal := b.Cut()
	s.pass(2 * s.TTL)
	s.must(call.waiting() || call.err != nil, "a waiter that was cut off got a held lock")
	heal()
	s.pass(s.TTL)
	s.must(call.waiting() || call.err != nil, "a held lock was granted")
	s.alive(lease)
	r.leave(true)
	s.unlock(lease)
	s.done("returned", call.ready)
	if call.err == nil {
		r.enter(call.lease, exclusive)
		s.unlock(call.lease)
	}
	for _, p := range r.problems {
		s.Error(p)
	}
	s.freed(b.Mutex(s.name))
}

func lossOtherClientsUnaffected(s *scenario) {
	a, b := s.open(), s.open()
	doomed, safe := s.locked(a.Mutex(s.sub("a"))), s.locked(b.Mutex(s.sub("b")))
	s.Evict(s.TB, s.sub("a"))
	s.lost(doomed)
	s.pass(s.TTL)
	s.alive(safe)
	s.unlock(safe)
}

func lossNextLockWorks(s *scenario) {
	p := s.open()
	for range 3 {
		lease := s.locked(p.Mutex(s.name))
		s.Evict(s.TB, s.name)
		s.lost(lease)
	}
	s.freed(p.Mutex(s.name))
	if p.Cut == nil || !s.Leased {
		return
	}
	lease := s.locked(p.Mutex(s.name))
	heal := p.Cut()
	s.lost(lease)
	heal()
	s.eventually("the client has recovered", func() bool {
		lease, err := p.Mutex(s.name).Lock(s.ctx)
		if err != nil {
			s.must(errors.Is(err, dlock.ErrUnavailable), "lock: %v", err)
			return false
		}
		s.unlock(lease)
		return true
	})
}

// lossWaiterGoesOn takes the lock from its holder while another waits.
func lossWaiterGoesOn(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	next := s.queue(b.Mutex(s.name), s.name, 1)
	s.Evict(s.TB, s.name)
	s.lost(lease)
	s.unlock(next.granted())
}

// lossKeyGone removes what stands for a hold: it is lost, and the next renewal
// tells at the latest.
func lossKeyGone(s *scenario) {
	lease := s.locked(s.open().Mutex(s.name))
	s.Evict(s.TB, s.name)
	s.within(2*s.TTL, "lost after it was taken away", lease.Done()) // a server may grant leases that are longer
	s.is(lease.Err(), dlock.ErrLost)
	s.is(lease.Unlock(s.ctx), dlock.ErrLost)
	s.freed(s.open().Mutex(s.name))
}
