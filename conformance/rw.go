package conformance

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

func rwReadersShare(s *scenario) {
	s.needs(Readers)
	peers, r := s.opens(4), new(checker)
	leases := make([]*dlock.Lease, 20)
	for i := range leases {
		leases[i] = s.rlocked(peers[i%4].RWMutex(s.name))
		r.enter(leases[i], false)
	}
	s.must(r.peak == 20, "%d readers were inside at once", r.peak)
	for _, lease := range leases {
		r.leave(false)
		s.unlock(lease)
	}
	r.report(s, 20)
}

func rwWriterAlone(s *scenario) {
	s.needs(Readers)
	a, b := s.open(), s.open()
	w := s.locked(a.RWMutex(s.name))
	for _, p := range []*Peer{a, b} {
		s.held(p.RWMutex(s.name))
		s.held(p.RWMutex(s.name).RLocker())
	}
	s.unlock(w)
	s.free(b.RWMutex(s.name).RLocker())
}

func rwWriterWaitsForAll(s *scenario) {
	s.needs(Readers)
	peers := s.opens(4)
	var readers []*dlock.Lease
	for _, p := range peers[:3] {
		readers = append(readers, s.rlocked(p.RWMutex(s.name)))
	}
	w := s.queue(peers[3].RWMutex(s.name), s.name, 1)
	for _, lease := range readers {
		w.waits("the writer got in beside a reader")
		s.unlock(lease)
	}
	s.unlock(w.granted())
}

// rwReadersAreTold has readers of one client wait for one writer. Each is told.
func rwReadersAreTold(s *scenario) {
	s.needs(Readers)
	const readers = 3
	w, l := s.locked(s.open().RWMutex(s.name)), s.open().RWMutex(s.name)
	var calls []*attempt
	for range readers {
		calls = append(calls, s.start(l.RLocker()))
	}
	s.eventually("all are told", func() bool { return s.waitsOf(s.name) == readers })
	s.unlock(w)
	for _, call := range calls {
		s.unlock(call.granted())
	}
}

// rwWriterNotStarved has readers come without end.
func rwWriterNotStarved(s *scenario) {
	s.needs(Readers)
	peers := s.opens(4)
	var stop atomic.Bool
	started := make(chan struct{}, 3)
	readers := make(chan struct{})
	go func() {
		defer close(readers)
		each(3, func(i int) {
			l := peers[i].RWMutex(s.name)
			for first := true; !stop.Load(); first = false {
				lease, err := l.RLock(s.ctx)
				if err != nil {
					s.Errorf("rlock: %v", err)
					return
				}
				if first {
					started <- struct{}{}
				}
				_ = lease.Unlock(s.ctx)
			}
		})
	}()
	for range 3 {
		<-started
	}
	for range 3 {
		s.unlock(s.locked(peers[3].RWMutex(s.name)))
	}
	stop.Store(true)
	s.done("readers end", readers)
}

// rwReaderNotStarved has writers come without end.
func rwReaderNotStarved(s *scenario) {
	s.needs(Readers)
	peers := s.opens(4)
	var stop atomic.Bool
	writers := make(chan struct{})
	go func() {
		defer close(writers)
		each(3, func(i int) {
			for !stop.Load() {
				lease, err := peers[i].RWMutex(s.name).Lock(s.ctx)
				if err != nil {
					s.Errorf("lock: %v", err)
					return
				}
				_ = lease.Unlock(s.ctx)
			}
		})
	}()
	for range 5 {
		s.unlock(s.rlocked(peers[3].RWMutex(s.name)))
	}
	stop.Store(true)
	s.done("writers end", writers)
}

// rwReadersGrantedTogether queues neighbouring readers behind a writer: none
// of them waits for another.
func rwReadersGrantedTogether(s *scenario) {
	s.needs(Readers)
	peers := s.opens(5)
	w := s.locked(peers[0].RWMutex(s.name))
	var line []*attempt
	for i, p := range peers[1:4] {
		line = append(line, s.queue(p.RWMutex(s.name).RLocker(), s.name, i+1))
	}
	last := s.queue(peers[4].RWMutex(s.name), s.name, 4)
	s.unlock(w)
	var readers []*dlock.Lease
	for _, a := range line {
		readers = append(readers, a.granted())
	}
	last.waits("the writer got in beside readers")
	for _, lease := range readers {
		s.unlock(lease)
	}
	s.unlock(last.granted())
}

func rwTryRLockBehindWaitingWriter(s *scenario) {
	s.needs(Readers)
	peers := s.opens(3)
	reader := s.rlocked(peers[0].RWMutex(s.name))
	w := s.queue(peers[1].RWMutex(s.name), s.name, 1)
	_, err := peers[2].RWMutex(s.name).TryRLock(s.ctx)
	s.is(err, dlock.ErrHeld)
	s.unlock(reader)
	s.unlock(w.granted())
	s.freed(peers[2].RWMutex(s.name).RLocker())
}

// rwWRW queues a reader between two writers.
func rwWRW(s *scenario) {
	s.needs(Readers)
	peers := s.opens(4)
	w := s.locked(peers[0].RWMutex(s.name))
	line := []*attempt{
		s.queue(peers[1].RWMutex(s.name).RLocker(), s.name, 1),
		s.queue(peers[2].RWMutex(s.name), s.name, 2),
		s.queue(peers[3].RWMutex(s.name).RLocker(), s.name, 3),
	}
	s.unlock(w)
	for i, a := range line {
		lease := a.granted()
		for _, later := range line[i+1:] {
			later.waits("overtaken")
		}
		s.unlock(lease)
	}
}

func rwUpgradeRefused(s *scenario) {
	s.needs(Readers)
	l := s.open().RWMutex(s.name)
	reader := s.rlocked(l)
	ctx := reader.Context(s.ctx)
	before := s.ops()
	_, err := l.Lock(ctx)
	s.is(err, dlock.ErrUpgrade)
	_, err = l.TryLock(ctx)
	s.is(err, dlock.ErrUpgrade)
	s.must(s.ops() == before, "%d requests for a refusal", s.ops()-before)
	s.unlock(reader)
}

// rwDowngrade turns a writer into a reader: waiting readers come in, and no
// writer comes between.
func rwDowngrade(s *scenario) {
	s.needs(Downgrade)
	peers := s.opens(3)
	w := s.locked(peers[0].RWMutex(s.name))
	token := w.Token()
	reader := s.queue(peers[1].RWMutex(s.name).RLocker(), s.name, 1)
	s.ok(w.Downgrade(s.ctx))
	s.must(w.Token() == token, "the token changed from %d to %d", token, w.Token())
	inside := reader.granted()
	s.held(peers[2].RWMutex(s.name))
	s.ok(w.Downgrade(s.ctx)) // once more does nothing
	s.pass(2 * s.TTL)
	s.alive(w)
	s.unlock(w)
	s.held(peers[2].RWMutex(s.name))
	s.unlock(inside)
	s.free(peers[2].RWMutex(s.name))
}

// rwDowngradeNeverAsked downgrades with a context that has ended: nobody asks the server,
// and the writer is one as before.
func rwDowngradeNeverAsked(s *scenario) {
	s.needs(Downgrade)
	a, b := s.open(), s.open()
	w := s.locked(a.RWMutex(s.name))
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	s.is(w.Downgrade(ended), context.Canceled)
	s.alive(w)
	s.must(!w.Shared(), "a downgrade that never asked made the lease shared")
	s.heldForReaders(b)
	s.heldForReaders(a)
	s.ok(w.Downgrade(s.ctx))
	s.unlock(s.rlocked(b.RWMutex(s.name)))
	s.unlock(w)
}

// heldForReaders checks that no reader gets in.
func (s *scenario) heldForReaders(p *Peer) {
	s.Helper()
	lease, err := p.RWMutex(s.name).TryRLock(s.ctx)
	if err == nil {
		s.unlock(lease)
	}
	s.is(err, dlock.ErrHeld)
}

// rwDowngradeAgainstQueuedWriter downgrades before a writer that waits: it
// goes on waiting.
func rwDowngradeAgainstQueuedWriter(s *scenario) {
	s.needs(Downgrade)
	peers := s.opens(3)
	w := s.locked(peers[0].RWMutex(s.name))
	next := s.queue(peers[1].RWMutex(s.name), s.name, 1)
	s.ok(w.Downgrade(s.ctx))
	s.held(peers[2].RWMutex(s.name).RLocker())
	next.waits("a writer came between")
	s.alive(w)
	s.unlock(w)
	s.unlock(next.granted())
}

// rwDowngradeLocally lets in readers of the same client.
func rwDowngradeLocally(s *scenario) {
	s.needs(Downgrade)
	l := s.open().RWMutex(s.name)
	w := s.locked(l)
	reader := s.start(l.RLocker())
	s.ok(w.Downgrade(s.ctx))
	s.unlock(reader.granted())
	s.unlock(w)
}

func rwDowngradeUnderEntries(s *scenario) {
	s.needs(Downgrade)
	l := s.open().RWMutex(s.name)
	w := s.locked(l)
	inner, err := l.Lock(w.Context(s.ctx))
	s.ok(err)
	s.is(w.Downgrade(s.ctx), dlock.ErrReentry)
	s.is(inner.Downgrade(s.ctx), dlock.ErrReentry)
	s.unlock(inner)
	s.ok(w.Downgrade(s.ctx))
	_, err = l.Lock(w.Context(s.ctx))
	s.is(err, dlock.ErrUpgrade)
	s.unlock(w)
}

// rwUnlockDuringDowngrade leaves nothing behind, here or on the server, whichever
// comes first.
func rwUnlockDuringDowngrade(s *scenario) {
	s.needs(Downgrade)
	peers := s.opens(2)
	for range 10 {
		w := s.locked(peers[0].RWMutex(s.name))
		downgraded := make(chan error, 1)
		go func() { downgraded <- w.Downgrade(s.ctx) }()
		s.unlock(w)
		if err := <-downgraded; err != nil {
			s.is(err, dlock.ErrUnlocked)
		}
		s.free(peers[1].RWMutex(s.name))
	}
}

// rwLeaseMatrix has readers with different TTLs: one that is lost takes none
// of the others along.
func rwLeaseMatrix(s *scenario) {
	s.needs(Readers)
	if s.na(!s.Leased, "holds have no lease") {
		return
	}
	peers := s.opens(4)
	doomed := s.rlocked(peers[0].RWMutex(s.name))
	long := s.rlocked(peers[1].RWMutex(s.name, dlock.WithTTL(5*s.TTL)))
	same := s.rlocked(peers[2].RWMutex(s.name))
	heal := peers[0].Cut()
	defer heal()
	s.lost(doomed)
	s.pass(s.TTL)
	s.alive(long)
	s.alive(same)
	s.unlock(long)
	s.held(peers[3].RWMutex(s.name))
	s.alive(same)
	s.unlock(same)
	s.freed(peers[3].RWMutex(s.name))
}

// rwRandom has eight clients read and write at random.
func rwRandom(s *scenario) {
	s.needs(Readers)
	peers, r := s.opens(8), new(checker)
	each(8, func(i int) {
		l := peers[i].RWMutex(s.name)
		for range 40 {
			if rand.N(10) == 0 {
				s.visit(r, l, true)
				continue
			}
			lease, err := l.RLock(s.ctx)
			if err != nil {
				s.Errorf("rlock: %v", err)
				return
			}
			r.enter(lease, false)
			r.leave(false)
			if err := lease.Unlock(s.ctx); err != nil {
				s.Errorf("unlock: %v", err)
			}
		}
	})
	r.report(s, 320)
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

// rwReadersAlone has readers come and go near the server, and one try to read from
// afar: no writer is anywhere, so it is never told that the lock is held.
func rwReadersAlone(s *scenario) {
	s.needs(Readers)
	const near, away, tries = 4, 4 * time.Millisecond, 20
	distant := s.open()
	if s.unable(distant.Delay == nil, "Delay") {
		return
	}
	s.unlock(s.rlocked(distant.RWMutex(s.name))) // connects
	ctx, cancel := context.WithCancel(s.ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, p := range s.opens(near) {
		m := p.RWMutex(s.name)
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := m.RLock(s.ctx)
				if err != nil {
					s.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				if err := lease.Unlock(s.ctx); err != nil {
					s.Error(err)
				}
			}
		})
	}
	distant.Delay(away)
	defer distant.Delay(0)
	for range tries {
		lease, err := distant.RWMutex(s.name).TryRLock(s.ctx)
		s.ok(err)
		s.unlock(lease)
	}
}
