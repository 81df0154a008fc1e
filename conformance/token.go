package conformance

import "github.com/dlock-go/dlock"

func tokenGrows(s *scene) {
	peers := s.opens(3)
	var last uint64
	for i := range 12 {
		lease := s.locked(peers[i%3].Mutex(s.name))
		s.must(lease.Token() > last, "token %d came after %d", lease.Token(), last)
		s.must(lease.TokenOf(s.name) == lease.Token() && lease.TokenOf("x") == 0, "TokenOf disagrees")
		last = lease.Token()
		s.unlock(lease)
	}
}

func tokenGrowsAcrossExpiry(s *scene) {
	a, b := s.open(), s.open()
	var last uint64
	for range 3 {
		lease := s.locked(a.Mutex(s.name))
		s.must(lease.Token() > last, "token %d came after %d", lease.Token(), last)
		last = lease.Token()
		s.Evict(s.TB, s.name)
		s.lost(lease)
		next := s.locked(b.Mutex(s.name))
		s.must(next.Token() > last, "token %d came after %d", next.Token(), last)
		last = next.Token()
		s.unlock(next)
	}
}

func tokenGrowsAcrossRestart(s *scene) {
	if s.Restart == nil {
		return // there is no server
	}
	p := s.open()
	lease := s.locked(p.Mutex(s.name))
	last := lease.Token()
	s.unlock(lease)
	s.Restart(s.TB)
	s.tokenGrowsAgain(p, last)
}

func tokenGrowsAcrossDataLoss(s *scene) {
	if s.Wipe == nil {
		return // not promised
	}
	p := s.open()
	lease := s.locked(p.Mutex(s.name))
	last := lease.Token()
	s.unlock(lease)
	s.Wipe(s.TB)
	s.tokenGrowsAgain(p, last)
}

// tokenGrowsAgain takes the lock as soon as it can be had.
func (s *scene) tokenGrowsAgain(p *Peer, last uint64) {
	s.Helper()
	var lease *dlock.Lease
	s.eventually("the lock works again", func() bool {
		var err error
		lease, err = p.Mutex(s.name).Lock(s.ctx)
		return err == nil
	})
	s.must(lease.Token() > last, "token %d came after %d", lease.Token(), last)
	s.unlock(lease)
}

// tokenReadersAgainstLastWriter checks the tokens of phases of readers between
// writers.
func tokenReadersAgainstLastWriter(s *scene) {
	s.needs(Readers)
	a, b := s.open(), s.open()
	var last uint64
	for range 3 {
		w := s.locked(a.RWMutex(s.name))
		s.must(w.Token() > last, "writer's token %d came after %d", w.Token(), last)
		writer := w.Token()
		s.unlock(w)
		one, two := s.rlocked(a.RWMutex(s.name)), s.rlocked(b.RWMutex(s.name))
		s.must(one.Token() > writer, "reader's token %d came after the writer's %d", one.Token(), writer)
		s.must(two.Token() > writer, "reader's token %d came after the writer's %d", two.Token(), writer)
		last = max(one.Token(), two.Token())
		s.unlock(one)
		s.unlock(two)
	}
}
