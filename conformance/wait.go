package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

func waitGranted(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	next := s.queue(b.Mutex(s.name), s.name, 1)
	next.waits("a held lock was granted")
	s.unlock(lease)
	s.unlock(next.granted())
}

// waitOtherLocksGoOn takes and gives back one lock while the same client waits
// for another.
func waitOtherLocksGoOn(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	other := s.locked(b.Mutex(s.sub("held")))
	next := s.queue(b.Mutex(s.name), s.name, 1)
	s.unlock(other)
	s.unlock(s.locked(b.Mutex(s.sub("new"))))
	next.waits("a held lock was granted")
	s.unlock(lease)
	s.unlock(next.granted())
}

// waitFIFOClients queues five clients one after the other, lets the middle one
// go, and checks in which order the others get in.
func waitFIFOClients(s *scenario) {
	peers := s.opens(6)
	lease := s.locked(peers[0].Mutex(s.name))
	var line []*attempt
	for i, p := range peers[1:] {
		line = append(line, s.queue(p.Mutex(s.name), s.name, i+1))
	}
	line[2].cancel(nil)
	s.is(line[2].failed(), dlock.ErrHeld)
	s.queued(s.name, 4)
	line = append(line[:2], line[3:]...)
	for i, a := range line {
		s.unlock(lease)
		lease = a.granted()
		for _, later := range line[i+1:] {
			later.waits("overtaken")
		}
	}
	s.unlock(lease)
}

func waitFIFOGoroutines(s *scenario) {
	waiting := make(chan struct{}, 8)
	p := s.openWith(dlock.Options{Hooks: dlock.Hooks{Waiting: func(context.Context, dlock.WaitingEvent) { waiting <- struct{}{} }}})
	lease := s.locked(p.Mutex(s.name))
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			l, err := p.Mutex(s.name).Lock(s.ctx)
			if err != nil {
				s.Errorf("lock: %v", err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := l.Unlock(s.ctx); err != nil {
				s.Errorf("unlock: %v", err)
			}
		})
		<-waiting
	}
	s.unlock(lease)
	all.Wait()
	for i, got := range order {
		s.must(got == i, "the order was %v", order)
	}
}

// waitNoPolling counts what a hundred idle waiters send. A client whose
// connection a busy machine has cost it comes to rest once more.
func waitNoPolling(s *scenario) {
	if s.unable(s.Ops == nil, "Ops") || s.na(s.Polls, "who waits asks by itself") {
		return
	}
	const ttl = 2 * time.Minute // the greatest of a quorum: no renewal comes between for 40 s
	holder := s.openWith(dlock.Options{TTL: ttl})
	waiter := s.openWith(dlock.Options{TTL: ttl})
	var leases []*dlock.Lease
	var calls []*attempt
	for i := range 100 {
		leases = append(leases, s.locked(holder.Mutex(s.sub(i))))
		calls = append(calls, s.start(waiter.Mutex(s.sub(i))))
	}
	for i := range 100 {
		s.queued(s.sub(i), 1)
	}
	var heard []string
	defer func() {
		if s.Failed() {
			s.Logf("heard in the last three seconds:\n%s", strings.Join(heard, "\n"))
		}
	}()
	s.eventually("three seconds in which 100 idle waiters send a request a second at most", func() bool {
		stop := func() []string { return nil }
		if s.Heard != nil {
			stop = s.Heard(s.TB)
		}
		before := s.ops()
		s.pass(3 * time.Second)
		sent := s.ops() - before
		heard = stop()
		return sent <= 3+2
	})
	for i := range 100 {
		s.unlock(leases[i])
		s.unlock(calls[i].granted())
	}
}

// waitNoHerd counts what one release costs with few and with many waiters.
func waitNoHerd(s *scenario) {
	if s.unable(s.Ops == nil, "Ops") || s.na(s.Polls, "who waits asks by itself") {
		return
	}
	cost := func(n int) int64 {
		name := s.sub(n)
		peers := s.opens(n + 1)
		lease := s.locked(peers[0].Mutex(name, dlock.WithTTL(time.Minute)))
		var line []*attempt
		for i, p := range peers[1:] {
			line = append(line, s.queue(p.Mutex(name, dlock.WithTTL(time.Minute)), name, i+1))
		}
		before := s.ops()
		s.unlock(lease)
		next := s.first(line)
		lease = next()
		s.queued(name, n-1)
		sent := s.ops() - before
		for range line[1:] {
			s.unlock(lease)
			lease = next()
		}
		s.unlock(lease)
		return sent
	}
	few, many := cost(2), cost(24)
	s.must(many <= few+6, "a release costs %d requests with 2 waiters and %d with 24", few, many)
}

// waitReleaseRacesPark unlocks at every moment of a waiter's way into the
// queue, many times.
func waitReleaseRacesPark(s *scenario) {
	a, b := s.open(), s.open()
	deadline := time.Now().Add(8 * time.Second)
	for i := 0; i < 10_000 && time.Now().Before(deadline); i++ {
		lease := s.locked(a.Mutex(s.name))
		next := s.start(b.Mutex(s.name))
		s.pass(time.Duration(i%200) * 5 * time.Microsecond)
		s.unlock(lease)
		s.unlock(next.granted())
	}
}

func waitManyLocks(s *scenario) {
	const n = 1000
	a, b := s.openWith(dlock.Options{TTL: time.Minute}), s.openWith(dlock.Options{TTL: time.Minute})
	leases := make([]*dlock.Lease, n)
	const takers = 50 // a holder that takes all at once has too much to do to renew them
	each(takers, func(first int) {
		for i := first; i < n; i += takers {
			leases[i], _ = s.patiently(a.Mutex(s.sub(i)))
		}
	})
	unlock := func(lease *dlock.Lease, err error) {
		if err == nil {
			err = lease.Unlock(s.ctx)
		}
		if err != nil {
			s.Errorf("unexpected error: %v", err)
		}
	}
	var waiters sync.WaitGroup
	for i := range n {
		s.alive(leases[i])
		waiters.Go(func() { unlock(s.patiently(b.Mutex(s.sub(i)))) })
	}
	s.queued(s.sub(n-1), 1)
	each(n, func(i int) { unlock(leases[i], nil) })
	waiters.Wait()
}

// waitMiddleWaiterDies cuts off a waiter in the middle of the queue for good.
func waitMiddleWaiterDies(s *scenario) {
	peers := s.opens(4)
	lease := s.locked(peers[0].Mutex(s.name))
	s.queue(peers[1].Mutex(s.name), s.name, 1)
	next := s.queue(peers[2].Mutex(s.name), s.name, 2)
	last := s.queue(peers[3].Mutex(s.name), s.name, 3)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if err := peers[1].Close(s.ctx); err != nil {
			s.Errorf("close: %v", err)
		}
	}()
	s.done("closed", closed)
	s.queued(s.name, 2)
	s.must(next.waiting() && last.waiting(), "the successor of a waiter that left got in before the holder was out")
	s.unlock(lease)
	s.unlock(next.granted())
	s.unlock(last.granted())
}

var errTest = errors.New("the test says so")
