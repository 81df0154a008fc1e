package conformance

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

func exclusionGoroutines(s *scenario) {
	l, r := s.open().Mutex(s.name), new(checker)
	counter := 0
	each(16, func(int) {
		for range 20 {
			lease, err := l.Lock(s.ctx)
			if err != nil {
				s.Errorf("lock: %v", err)
				return
			}
			r.enter(lease, true)
			counter++
			r.leave(true)
			if err := lease.Unlock(s.ctx); err != nil {
				s.Errorf("unlock: %v", err)
			}
		}
	})
	r.report(s, 320)
	s.must(counter == 320, "the counter is %d, updates were lost", counter)
}

func exclusionLockers(s *scenario) {
	p, r := s.open(), new(checker)
	each(16, func(int) {
		l := p.Mutex(s.name)
		for range 10 {
			s.visit(r, l, true)
		}
	})
	r.report(s, 160)
}

func exclusionClients(s *scenario) {
	peers, r := s.opens(8), new(checker)
	each(8, func(i int) {
		for range 15 {
			s.visit(r, peers[i].Mutex(s.name), true)
		}
	})
	r.report(s, 120)
}

func exclusionMutexAndRWMutex(s *scenario) {
	s.needs(Readers)
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	s.held(b.RWMutex(s.name))
	s.held(b.RWMutex(s.name).RLocker())
	s.held(a.RWMutex(s.name).RLocker())
	s.unlock(lease)

	lease = s.rlocked(a.RWMutex(s.name))
	s.held(b.Mutex(s.name))
	s.held(a.Mutex(s.name))
	s.unlock(lease)
	s.freed(b.Mutex(s.name))
}

// oddNames are names that a careless mapping to keys or paths would mix up.
func oddNames(s *scenario) []string {
	long := s.name
	for len(long) < 1000 {
		long += "/0123456789"
	}
	long = long[:1000]
	base := s.name
	return []string{
		base + "a", base + "a/b", base + "/a", base + "a/", base + "A", base + "a//b", base + "a b",
		base + "a{b}c", base + "{}", base + "}{", base + "a%2Fb", base + "\x00", base + "\n",
		base + "\xff\xfe", base + "\uf8ff", base + "\u00e9", base + "e\u0301", base + ":", base + "*",
		base + "~", base + "..", long + "1", long + "2",
		"/" + base, "../" + base, "..", ".", "/", "{", "%", "\x00", "{}", "a", "a/b", "zookeeper", long[:1000] + long[:24],
	}
}

func exclusionNamesIndependent(s *scenario) {
	a, b := s.open(), s.open()
	var leases []*dlock.Lease
	for _, name := range oddNames(s) {
		lease, err := a.Mutex(name).TryLock(s.ctx)
		if err != nil {
			s.Fatalf("%q is taken with the names before it: %v", name, err)
		}
		leases = append(leases, lease)
	}
	for i, name := range oddNames(s) {
		s.held(b.Mutex(name))
		s.unlock(leases[i])
		s.free(b.Mutex(name))
	}
}

func exclusionPrefixesIndependent(s *scenario) {
	red := s.openWith(dlock.Options{Prefix: s.sub("red/")})
	blue := s.openWith(dlock.Options{Prefix: s.sub("blue/")})
	plain := s.open()
	lease := s.locked(red.Mutex("x"))
	s.free(blue.Mutex("x"))
	s.free(plain.Mutex("x"))
	s.held(plain.Mutex(s.sub("red/") + "x"))
	s.unlock(lease)
}

func tryLockFree(s *scenario) {
	l := s.open().Mutex(s.name)
	s.free(l)
	s.free(l)
}

func tryLockBusyReturnsAtOnce(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	before, start := s.ops(), time.Now()
	_, err := b.Mutex(s.name).TryLock(s.ctx)
	s.is(err, dlock.ErrHeld)
	s.not(err, dlock.ErrUnavailable)
	_, err = a.Mutex(s.name).TryLock(s.ctx)
	s.is(err, dlock.ErrHeld)
	took := time.Since(start) - stallTime.stalled(start)
	s.must(took < s.TTL/4, "two tries took %v", took)
	s.must(s.ops()-before <= 5, "two tries sent %d requests", s.ops()-before)
	s.unlock(lease)
}

func tryLockOneWinner(s *scenario) {
	peers := s.opens(8)
	var won atomic.Int64
	leases := make([]*dlock.Lease, 32)
	each(32, func(i int) {
		lease, err := peers[i%8].Mutex(s.name).TryLock(s.ctx)
		if err == nil {
			won.Add(1)
			leases[i] = lease
		} else {
			s.is(err, dlock.ErrHeld)
		}
	})
	s.must(won.Load() == 1, "%d of 32 tries won", won.Load())
	for _, lease := range leases {
		if lease != nil {
			s.unlock(lease)
		}
	}
}

func tryLockLeavesNothing(s *scenario) {
	peers := s.opens(3)
	lease := s.locked(peers[0].Mutex(s.name))
	for range 20 {
		s.held(peers[1].Mutex(s.name))
	}
	s.pass(s.TTL / 20) // for what they might have left to arrive
	s.must(s.Waiting(s.TB, s.name) == 0, "failed tries left somebody waiting")
	next := s.queue(peers[2].Mutex(s.name), s.name, 1)
	for range 20 {
		s.held(peers[1].Mutex(s.name))
	}
	s.must(s.Waiting(s.TB, s.name) == 1, "failed tries left somebody waiting")
	s.unlock(lease)
	s.unlock(next.granted())
	s.free(peers[1].Mutex(s.name))
}

func tryLockDoesNotOvertake(s *scenario) {
	s.needs(Readers)
	peers := s.opens(3)
	reader := s.rlocked(peers[0].RWMutex(s.name))
	writer := s.queue(peers[1].Mutex(s.name), s.name, 1)
	s.held(peers[2].RWMutex(s.name).RLocker())
	s.unlock(reader)
	s.unlock(writer.granted())
	s.freed(peers[2].RWMutex(s.name).RLocker())
}
