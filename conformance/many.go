package conformance

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

// many is how many locks are lost or given back together: enough for batches, few
// enough for a server that writes each of them to disk.
const many = 500

// lockedMany takes that many locks.
func (s *scenario) lockedMany(p *Peer) []*dlock.Lease {
	s.Helper()
	leases := make([]*dlock.Lease, many)
	each(opener, func(w int) {
		for i := w; i < many; i += opener {
			lease, err := s.patiently(p.Mutex(s.sub(i)))
			if err != nil {
				s.Errorf("lock %d: %v", i, err)
				return
			}
			leases[i] = lease
		}
	})
	s.must(!s.Failed(), "not all locks could be had")
	return leases
}

const opener = 32

// closeReleasesMany closes a client that holds many locks: all are free then, with
// far fewer goroutines than locks.
func closeReleasesMany(s *scenario) {
	a, b := s.open(), s.open()
	leases := s.lockedMany(a)
	stop, most := make(chan struct{}), make(chan int)
	go func() { most <- releasing(stop) }()
	s.ok(a.Close(s.ctx))
	close(stop)
	if n := <-most; n > many/2 {
		s.Errorf("%d goroutines release %d locks", n, many)
	}
	for i, lease := range leases {
		s.is(lease.Err(), dlock.ErrClosed)
		if i%10 == 0 {
			s.free(b.Mutex(s.sub(i)))
		}
	}
}

// releasing returns the most goroutines seen that release a lock.
func releasing(stop <-chan struct{}) (most int) {
	for !isClosed(stop) {
		n := 0
		for _, g := range stacks() {
			if strings.Contains(g, ".Release(") {
				n++
			}
		}
		most = max(most, n)
		time.Sleep(time.Millisecond)
	}
	return most
}

// lossOfMany cuts off a client that holds many locks. Another waits for some of them:
// it gets none whose context lives.
func lossOfMany(s *scenario) {
	var told atomic.Int64
	a := s.openWith(dlock.Options{Hooks: dlock.Hooks{Lost: func(dlock.LostEvent) { told.Add(1) }}})
	if !s.Leased {
		s.neverWithout(a)
		return
	}
	b := s.open()
	leases := s.lockedMany(a)
	contexts := make([]context.Context, many)
	for i, lease := range leases {
		contexts[i] = lease.Context(s.ctx)
	}
	heal := a.Cut()
	defer heal()
	each(opener, func(w int) {
		for i := w; i < many; i += opener {
			next, err := s.patiently(b.Mutex(s.sub(i)))
			if err != nil {
				s.Errorf("next: %v", err)
				return
			}
			if contexts[i].Err() == nil {
				s.Error("another has a lock whose context lives")
			}
			_ = next.Unlock(s.ctx) // on a machine that stands still it may be lost by now
		}
	})
	for _, lease := range leases {
		s.lost(lease)
	}
	s.eventually("every loss is told", func() bool { return told.Load() == many })
}
