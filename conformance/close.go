package conformance

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

func closeReleasesHeld(s *scenario) {
	a, b := s.open(), s.open()
	var leases []*dlock.Lease
	for i := range 20 {
		leases = append(leases, s.locked(a.Mutex(s.sub(i))))
	}
	s.ok(a.Close(s.ctx))
	for i, lease := range leases {
		s.is(lease.Err(), dlock.ErrClosed)
		s.free(b.Mutex(s.sub(i)))
	}
}

// closeUnderALease closes a client with the context of a lease, which ends meanwhile.
func closeUnderALease(s *scenario) {
	a, b := s.open(), s.open()
	s.ok(a.Close(s.locked(a.Mutex(s.name)).Context(s.ctx)))
	s.free(b.Mutex(s.name))
}

func closeEndsWaiters(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	remote := s.queue(b.Mutex(s.name), s.name, 1)
	local := s.start(b.Mutex(s.name))
	s.ok(b.Close(s.ctx))
	s.is(remote.failed(), dlock.ErrClosed)
	s.is(local.failed(), dlock.ErrClosed)
	_, err := b.Mutex(s.name).Lock(s.ctx)
	s.is(err, dlock.ErrClosed)
	_, err = b.Mutex(s.name).TryLock(s.ctx)
	s.is(err, dlock.ErrClosed)
	s.queued(s.name, 0)
	s.unlock(lease)
	s.free(a.Mutex(s.name))
}

func closeTwice(s *scenario) {
	p := s.open()
	s.ok(p.Close(s.ctx))
	s.ok(p.Close(s.ctx))
}

// closeCut closes a client that cannot reach the server: it ends all the same.
func closeCut(s *scenario) {
	a, b := s.open(), s.open()
	if s.unable(a.Cut == nil, "Cut") {
		return
	}
	s.locked(a.Mutex(s.name))
	heal := a.Cut()
	defer heal()
	ctx, cancel := context.WithTimeout(s.ctx, s.TTL/2)
	defer cancel()
	closed := make(chan struct{})
	go func() { defer close(closed); _ = a.Close(ctx) }()
	s.done("closed", closed)
	s.freed(b.Mutex(s.name))
}

// closeNoResidue uses everything, closes, and looks for what is left: on the
// server and in this process.
func closeNoResidue(s *scenario) {
	all := stacks()
	peers := s.opens(3)
	home := reflect.Indirect(reflect.ValueOf(peers[0].Backend)).Type().PkgPath()
	before := len(ours(all, home))
	for i := range 10 {
		name := s.sub(i)
		lease := s.locked(peers[0].Mutex(name))
		next := s.queue(peers[1].Mutex(name), name, 1)
		quits := s.queue(peers[2].Mutex(name), name, 2)
		quits.cancel(errTest)
		s.is(quits.failed(), dlock.ErrHeld)
		s.held(peers[2].Mutex(name))
		if i%2 == 0 {
			s.unlock(lease)
			s.unlock(next.granted())
		}
	}
	each(3, func(i int) {
		if err := peers[i].Close(s.ctx); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	s.noResidue(before, home)
}

// noResidue waits until the server has nothing left of this scenario's names and
// this process no goroutine more than before.
func (s *scenario) noResidue(before int, home string) {
	s.Helper()
	var left []string
	clean := func() bool {
		left = append(left[:0], s.Residue(s.TB)...)
		if now := ours(stacks(), home); len(now) > before {
			left = append(left, fmt.Sprintf("%d goroutines, %d before:\n%s", len(now), before, strings.Join(now, "\n\n")))
		}
		return len(left) == 0
	}
	for !clean() {
		select {
		case <-s.ctx.Done():
			s.Fatalf("left over: %s", strings.Join(left, "\n"))
		case <-time.After(s.TTL / 10):
		}
	}
}

func closeBorrowedClientStaysOpen(s *scenario) {
	if s.unable(s.Borrow == nil, "Borrow") {
		return
	}
	b, works := s.Borrow(s.TB)
	c, err := dlock.New(b, &dlock.Options{TTL: s.TTL})
	s.ok(err)
	s.locked(c.Mutex(s.name))
	s.ok(c.Close(s.ctx))
	s.ok(works())
	s.free(s.open().Mutex(s.name))
}
