package conformance

import "github.com/dlock-go/dlock"

func tokenGrows(s *scenario) {
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

// tokenGrowsInARow has one client take the lock many times before another does.
func tokenGrowsInARow(s *scenario) {
	a, b := s.open().Mutex(s.name), s.open().Mutex(s.name)
	var last uint64
	visit := func(l dlock.Locker, meanwhile func()) {
		lease := s.locked(l)
		s.must(lease.Token() > last, "token %d came after %d", lease.Token(), last)
		last = lease.Token()
		meanwhile()
		s.unlock(lease)
	}
	for range 3 {
		for range 12 {
			visit(a, func() {})
		}
		visit(a, func() { s.held(b) })
		visit(b, func() { s.held(a) })
	}
}

// tokenReadersAfterDowngrade has a hold passed on inside its client and then
// downgraded: who reads beside it comes after all who had it.
func tokenReadersAfterDowngrade(s *scenario) {
	s.needs(Downgrade)
	a, b := s.open().RWMutex(s.name), s.open().RWMutex(s.name)
	first, told := s.locked(a), s.waitsOf(s.name)
	next := s.start(a)
	s.eventually("a goroutine waits", func() bool { return s.waitsOf(s.name) == told+1 })
	s.unlock(first)
	w := next.granted()
	s.ok(w.Downgrade(s.ctx))
	reader := s.rlocked(b)
	s.must(reader.Token() >= w.Token(), "reader's token %d came after the writer's %d", reader.Token(), w.Token())
	s.unlock(w)
	last := reader.Token()
	s.unlock(reader)
	w = s.locked(b)
	s.must(w.Token() > last, "writer's token %d came after the reader's %d", w.Token(), last)
	s.unlock(w)
}

func tokenGrowsAcrossExpiry(s *scenario) {
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

func tokenGrowsAcrossRestart(s *scenario) {
	if s.unable(s.Restart == nil, "Restart") {
		return
	}
	p := s.open()
	lease := s.locked(p.Mutex(s.name))
	last := lease.Token()
	s.unlock(lease)
	s.Restart(s.TB)
	s.tokenGrowsAgain(p, last)
}

func tokenGrowsAcrossDataLoss(s *scenario) {
	if s.unable(s.Wipe == nil, "Wipe") {
		return
	}
	p := s.open()
	lease := s.locked(p.Mutex(s.name))
	last := lease.Token()
	s.unlock(lease)
	s.Wipe(s.TB)
	s.tokenGrowsAgain(p, last)
}

// tokenGrowsAgain takes the lock as soon as it can be had.
func (s *scenario) tokenGrowsAgain(p *Peer, last uint64) {
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
func tokenReadersAgainstLastWriter(s *scenario) {
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
