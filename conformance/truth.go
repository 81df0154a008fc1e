package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// reentryAfterEarlyUnlock unlocks an entry while one under it lasts: nobody else
// under the same lease gets in beside that.
func reentryAfterEarlyUnlock(s *scenario) {
	l := s.open().Mutex(s.name)
	outer := s.locked(l)
	ctx := outer.Context(s.ctx)
	child, err := l.Lock(ctx)
	s.ok(err)
	grandchild, err := l.Lock(child.Context(ctx))
	s.ok(err)
	s.unlock(child)
	if sibling, err := l.TryLock(ctx); err == nil {
		s.Fatalf("two exclusive leases last at once: %v and %v", grandchild.Err(), sibling.Err())
	}
	s.alive(grandchild)
	s.unlock(grandchild)
	sibling, err := l.TryLock(ctx)
	s.ok(err)
	s.unlock(sibling)
	s.unlock(outer)
}

// leadSilentServer ends a candidate whose server does not answer.
func leadSilentServer(s *scenario) {
	p := s.open()
	if s.unable(p.Cut == nil, "Cut") {
		return
	}
	heal := p.Cut()
	defer heal()
	ctx, cancel := context.WithCancelCause(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := dlock.Lead(ctx, p.Mutex(s.name), func(context.Context, *dlock.Lease) error { return nil })
		if !errors.Is(err, errTest) {
			s.Errorf("Lead returned %v", err)
		}
	}()
	s.pass(s.TTL / 4)
	cancel(errTest)
	s.within(backend.FirstAnswer+s.TTL, "Lead ends with its context", ended)
}

// hooksPanic has the hook of a call panic: the call panics on, and has neither the lock
// nor a place in the queue.
func hooksPanic(s *scenario) {
	var armed atomic.Bool
	hook := func() {
		if armed.CompareAndSwap(true, false) {
			panic(errTest)
		}
	}
	lock := func(p *Peer) {
		s.Helper()
		defer func() { s.must(recover() == errTest, "the call does not panic on") }()
		armed.Store(true)
		_, _ = p.Mutex(s.name).Lock(s.ctx)
	}
	owner := s.openWith(dlock.Options{Hooks: dlock.Hooks{Acquired: func(context.Context, dlock.AcquiredEvent) { hook() }}})
	waiter := s.openWith(dlock.Options{Hooks: dlock.Hooks{Waiting: func(context.Context, dlock.WaitingEvent) { hook() }}})
	other := s.open()
	lock(owner)
	lease := s.locked(other.Mutex(s.name))
	lock(waiter)
	s.queued(s.name, 0)
	s.unlock(lease)
	s.freed(owner.Mutex(s.name))
}

// rwWriterAmongLongReaders has two readers hold a lock in turn, so that somebody
// always does, and a writer come between: first come, first served. Where the order is
// kept by clients that answer in time, a round during which this process got no
// processor is made again.
func rwWriterAmongLongReaders(s *scenario) {
	s.needs(Readers)
	peers := s.opens(3)
	for range 4 {
		if s.writerBetweenReaders(peers) {
			return
		}
	}
	s.Fatal("a reader overtook the writer in each of 4 rounds")
}

// writerBetweenReaders reports false if a reader overtook the writer while this process
// did not run.
func (s *scenario) writerBetweenReaders(peers []*Peer) bool {
	start := time.Now()
	first := s.rlocked(peers[0].RWMutex(s.name))
	w := s.queue(peers[2].RWMutex(s.name), s.name, 1)
	second := s.queue(peers[1].RWMutex(s.name).RLocker(), s.name, 2)
	s.pass(3 * s.TTL)
	w.waits("the writer got in beside a reader")
	s.unlock(first)
	s.eventually("the writer or the next reader got the lock", func() bool { return !w.waiting() || !second.waiting() })
	if !second.waiting() {
		w.waits("a reader got in beside the writer")
		if !s.OrderByClients || stallTime.stalled(start) == 0 {
			s.Fatal("a reader overtook the writer")
		}
		s.unlock(second.granted())
		s.unlock(w.granted())
		return false
	}
	writer := w.granted()
	second.waits("a reader got in beside the writer")
	s.unlock(writer)
	s.unlock(second.granted())
	return true
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
