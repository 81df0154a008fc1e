package conformance

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
)

func multiAllOrNone(s *scenario) {
	a, b := s.open(), s.open()
	x, y := s.sub("x"), s.sub("y")
	lease := s.locked(a.Multi([]string{x, y}))
	s.held(b.Mutex(x))
	s.held(b.Mutex(y))
	s.must(lease.Token() == 0, "a multi-lease has a token of its own")
	s.unlock(lease)
	s.free(b.Mutex(x))

	only := s.locked(b.Mutex(y))
	_, err := a.Multi([]string{x, y}).TryLock(s.ctx)
	s.is(err, dlock.ErrHeld)
	s.free(b.Mutex(x))
	waiting := s.startToldOf(a.Multi([]string{y, x}), x, y)
	s.queued(y, 1)
	waiting.cancel(errTest)
	s.is(waiting.failed(), dlock.ErrHeld, errTest)
	s.freed(b.Mutex(x))
	s.unlock(only)
}

// startToldOf starts a call on l that is told that it waits for y. A call is told once, and x
// may just be given back: one that is told of x begins anew. Until its client has heard that y
// is held, the end of a call is ErrUnavailable, whatever the server has in its queue.
func (s *scenario) startToldOf(l dlock.Locker, x, y string) *attempt {
	s.Helper()
	for {
		ofX, ofY := s.waitsOf(x), s.waitsOf(y)
		a := s.start(l)
		s.eventually("the call is told to wait", func() bool { return s.waitsOf(x) > ofX || s.waitsOf(y) > ofY })
		if s.waitsOf(y) > ofY {
			return a
		}
		a.cancel(errTest)
		_ = a.failed()
	}
}

func multiDuplicates(s *scenario) {
	p := s.open()
	lease := s.locked(p.Multi([]string{s.name, s.name, s.name}))
	s.unlock(lease)
	s.free(p.Mutex(s.name))
}

func multiTokenOf(s *scenario) {
	p := s.open()
	x, y := s.sub("x"), s.sub("y")
	lease := s.locked(p.Multi([]string{x, y}))
	tx, ty := lease.TokenOf(x), lease.TokenOf(y)
	s.must(tx != 0 && ty != 0 && lease.TokenOf("other") == 0, "tokens %d and %d", tx, ty)
	inner, err := p.Mutex(x).Lock(lease.Context(s.ctx))
	s.ok(err)
	s.must(inner.Token() == tx, "the entry's token is %d, want %d", inner.Token(), tx)
	s.unlock(inner)
	s.unlock(lease)
	next := s.locked(p.Mutex(x))
	s.must(next.Token() > tx, "token %d came after %d", next.Token(), tx)
	s.unlock(next)
}

func multiOppositeOrders(s *scenario) {
	peers := s.opens(4)
	names := []string{s.sub(1), s.sub(2), s.sub(3)}
	r := new(checker)
	each(4, func(i int) {
		order := []string{names[i%3], names[(i+1)%3], names[(i+2)%3]}
		if i%2 == 0 {
			order[0], order[2] = order[2], order[0]
		}
		for range 10 {
			lease, err := peers[i].Multi(order).Lock(s.ctx)
			if err != nil {
				s.Errorf("lock: %v", err)
				return
			}
			r.mu.Lock()
			r.visits++
			r.accept(lease.TokenOf(names[0]), true)
			r.mu.Unlock()
			if err := lease.Unlock(s.ctx); err != nil {
				s.Errorf("unlock: %v", err)
			}
		}
	})
	r.report(s, 40)
}

func multiLostIfAny(s *scenario) {
	a, b := s.open(), s.open()
	x, y := s.sub("x"), s.sub("y")
	lease := s.locked(a.Multi([]string{x, y}))
	work := lease.Context(s.ctx)
	s.Evict(s.TB, y)
	s.lost(lease)
	s.done("context ended", work.Done())
	s.freed(b.Mutex(x)) // nobody counts on it any more
	s.is(lease.Unlock(s.ctx), dlock.ErrLost)
	s.freed(b.Mutex(y))
}

func multiMaxWait(s *scenario) {
	a, b := s.open(), s.open()
	x, y := s.sub("x"), s.sub("y")
	lease := s.locked(a.Mutex(y))
	start, wait := time.Now(), s.TTL/2
	_, err := b.Multi([]string{x, y}, dlock.WithMaxWait(wait)).Lock(s.ctx)
	s.is(err, dlock.ErrHeld, context.DeadlineExceeded)
	s.must(time.Since(start) >= wait, "waited for %v only", time.Since(start))
	s.freed(a.Mutex(x))
	s.unlock(lease)
}

// multiMaxHold has a multi-lock wait for its second lock for longer than it may be held. It
// keeps its place there, and the first lock; its time begins when it has both.
func multiMaxHold(s *scenario) {
	a, b, c := s.open(), s.open(), s.open()
	x, y := s.sub("x"), s.sub("y")
	hold := s.TTL
	holder := s.locked(a.Mutex(y))
	line := []*attempt{s.queue(b.Multi([]string{x, y}, dlock.WithMaxHold(hold)), y, 1)}
	line = append(line, s.queue(c.Mutex(y), y, 2))
	s.pass(hold * 3 / 2)
	s.held(c.Mutex(x))
	next, start := s.first(line), time.Now()
	s.unlock(holder)
	lease := next()
	s.must(lease.TokenOf(x) != 0, "who came later overtook the multi-lock")
	s.lost(lease)
	lasted := time.Since(start)
	s.must(lasted >= hold-hold/50, "a hold of at most %v ended after %v", hold, lasted)
	s.unlock(next())
	s.freed(c.Mutex(x))
}
