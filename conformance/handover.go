package conformance

import (
	"slices"
	"sync/atomic"

	"github.com/dlock-go/dlock"
)

// handOverTokens has goroutines of two clients pass one lock on, inside each
// client and between them.
func handOverTokens(s *scenario) {
	peers, r := s.opens(2), new(checker)
	each(12, func(i int) {
		for range 20 {
			s.visit(r, peers[i%2].Mutex(s.name), true)
		}
	})
	r.report(s, 240)
}

// handOverLetsOthersIn has the goroutines of one client ask for the lock
// without end.
func handOverLetsOthersIn(s *scenario) {
	a, b := s.open(), s.open()
	s.besieged(a.Mutex(s.name), func() {
		for range 3 {
			s.unlock(s.locked(b.Mutex(s.name)))
		}
	})
}

// handOverReaders has readers of one client come without end.
func handOverReaders(s *scenario) {
	s.needs(Readers)
	a, b := s.open(), s.open()
	s.besieged(a.RWMutex(s.name).RLocker(), func() {
		for range 3 {
			s.unlock(s.locked(b.RWMutex(s.name)))
		}
	})
}

// besieged runs f while four goroutines take l and let go of it without end.
func (s *scenario) besieged(l dlock.Locker, f func()) {
	var stop atomic.Bool
	ended, started := make(chan struct{}), make(chan struct{}, 4)
	go func() {
		defer close(ended)
		each(4, func(int) {
			for first := true; !stop.Load(); first = false {
				lease, err := l.Lock(s.ctx)
				if err != nil {
					s.Errorf("lock: %v", err)
					return
				}
				if first {
					started <- struct{}{}
				}
				_ = lease.Unlock(s.ctx)
			}
		})
	}()
	for range 4 {
		s.done("everybody has had the lock", firstOf(started))
	}
	f()
	stop.Store(true)
	s.done("the others end", ended)
}

func firstOf(ch <-chan struct{}) <-chan struct{} {
	got := make(chan struct{})
	go func() { <-ch; close(got) }()
	return got
}

// handOverAsksNobody counts what is sent while goroutines of one client pass
// the lock on. Where the machine is slow the lock goes back to the server on the
// way, so they try until it does not.
func handOverAsksNobody(s *scenario) {
	if s.unable(s.Ops == nil, "Ops") || s.na(!slices.Contains(s.Optional, "Transferer"), "the backend is no Transferer") {
		return
	}
	const waiters = 12
	l := s.open().Mutex(s.name)
	s.eventually("the lock passes without a request", func() bool {
		lease, told := s.locked(l), s.waitsOf(s.name)
		var calls []*attempt
		for range waiters {
			calls = append(calls, s.start(l))
		}
		next := s.first(calls)
		s.eventually("all wait", func() bool { return s.waitsOf(s.name) == told+waiters })
		before := s.ops()
		s.unlock(lease)
		for range waiters - 1 {
			s.unlock(next())
		}
		last := next()
		sent := s.ops() - before
		s.unlock(last)
		return sent == 0
	})
}

// handOverLoss takes the lock away from a goroutine that it was passed to.
// Those who wait ask the server anew, and get greater tokens.
func handOverLoss(s *scenario) {
	a, r := s.open(), new(checker)
	l := a.Mutex(s.name)
	lease := s.locked(l)
	calls := []*attempt{s.start(l), s.start(l), s.start(l)}
	next := s.first(calls)
	last := lease.Token()
	s.unlock(lease)
	victim := next()
	s.must(victim.Token() > last, "token %d came after %d", victim.Token(), last)
	r.accept(victim.Token(), true)
	s.Evict(s.TB, s.name)
	s.lost(victim)
	s.is(victim.Unlock(s.ctx), dlock.ErrLost)
	for range 2 {
		lease := next()
		r.enter(lease, true)
		r.leave(true)
		s.unlock(lease)
	}
	r.report(s, 2)
}

// wantedIsTold checks that a holder hears of another client that waits, where
// the backend can tell.
func wantedIsTold(s *scenario) {
	a, b := s.open(), s.open()
	plain := s.locked(a.Mutex(s.name))
	if s.na(plain.Wanted() == nil, "the backend does not tell of waiters") {
		return
	}
	s.told(plain, b.Mutex(s.name), s.name)
	limited := s.locked(a.Mutex(s.sub("limited"), dlock.WithTTL(4*s.TTL), dlock.WithMaxHold(4*s.TTL)))
	s.told(limited, b.Mutex(s.sub("limited")), s.sub("limited"))
	if !s.lacks(Readers) {
		reader := s.rlocked(a.RWMutex(s.sub("read")))
		s.told(reader, b.Mutex(s.sub("read")), s.sub("read"))
	}
}

// told has somebody wait for the lock that lease is on. Whoever has a channel for that
// hears of it.
func (s *scenario) told(lease *dlock.Lease, other dlock.Locker, name string) {
	s.Helper()
	wanted := lease.Wanted()
	next := s.queue(other, name, 1)
	if wanted != nil {
		s.within(2*s.TTL, "told that somebody waits", wanted)
		s.alive(lease)
	}
	s.unlock(lease)
	s.unlock(next.granted())
}
