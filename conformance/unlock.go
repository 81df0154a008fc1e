package conformance

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func unlockDeadContext(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	s.ok(lease.Unlock(ctx))
	s.free(b.Mutex(s.name))
}

func unlockTwice(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	s.unlock(lease)
	next := s.locked(b.Mutex(s.name))
	s.is(lease.Unlock(s.ctx), dlock.ErrUnlocked)
	s.is(lease.Err(), dlock.ErrUnlocked)
	s.done("ended", lease.Done())
	s.held(a.Mutex(s.name))
	s.unlock(next)
}

func unlockAfterLoss(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	s.Evict(s.TB, s.name)
	s.lost(lease)
	next := s.locked(b.Mutex(s.name))
	s.is(lease.Unlock(s.ctx), dlock.ErrLost)
	s.is(lease.Unlock(s.ctx), dlock.ErrLost)
	s.held(a.Mutex(s.name))
	s.alive(next)
	s.unlock(next)
}

// unlockResent loses the reply to an unlock. The repeat that follows must not
// free the lock for whoever has it by then.
func unlockResent(s *scenario) {
	a, b := s.open(), s.open()
	if s.unable(a.DropReply == nil, "DropReply") {
		return
	}
	for range 3 {
		lease := s.locked(a.Mutex(s.name))
		a.DropReply()
		if err := lease.Unlock(s.ctx); err != nil {
			s.is(err, dlock.ErrUnavailable)
		}
		next := s.locked(b.Mutex(s.name))
		s.pass(s.TTL / 4)
		s.held(a.Mutex(s.name))
		s.alive(next)
		s.unlock(next)
	}
}

// lockResent loses the reply to a lock. Whatever comes of it, nothing stays
// behind but what the caller knows of.
func lockResent(s *scenario) {
	a, b := s.open(), s.open()
	if s.unable(a.DropReply == nil, "DropReply") {
		return
	}
	for range 3 {
		a.DropReply()
		lease, err := a.Mutex(s.name).Lock(s.ctx)
		if err != nil {
			s.is(err, dlock.ErrUnavailable)
		} else {
			s.held(b.Mutex(s.name))
			s.unlock(lease)
		}
		s.freed(b.Mutex(s.name))
	}
}

func unlockOtherGoroutine(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	each(1, func(int) { s.ok(lease.Unlock(s.ctx)) })
	s.free(b.Mutex(s.name))
}

// unlockConcurrently has many goroutines unlock one lease.
func unlockConcurrently(s *scenario) {
	lease := s.locked(s.open().Mutex(s.name))
	errs := make([]error, 16)
	each(16, func(i int) { errs[i] = lease.Unlock(s.ctx) })
	n := 0
	for _, err := range errs {
		if err == nil {
			n++
		} else {
			s.is(err, dlock.ErrUnlocked)
		}
	}
	s.must(n == 1, "%d of 16 unlocks of one lease succeeded", n)
}

func unlockNilLease(s *scenario) {
	for _, lease := range []*dlock.Lease{nil, {}} {
		s.is(lease.Unlock(s.ctx), dlock.ErrUnlocked)
		s.is(lease.Downgrade(s.ctx), dlock.ErrUnlocked)
		s.is(lease.Err(), dlock.ErrUnlocked)
		s.done("ended", lease.Done())
		s.must(lease.Token() == 0 && lease.TokenOf(s.name) == 0 && lease.Wanted() == nil, "a zero lease has a token")
		s.is(context.Cause(lease.Context(s.ctx)), dlock.ErrUnlocked)
	}
}

func unlockAfterClose(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	work := lease.Context(s.ctx)
	s.ok(a.Close(s.ctx))
	s.done("context ended", work.Done())
	s.must(errors.Is(context.Cause(work), dlock.ErrClosed), "the cause is %v", context.Cause(work))
	s.is(lease.Err(), dlock.ErrClosed)
	s.is(lease.Unlock(s.ctx), dlock.ErrClosed)
	s.free(b.Mutex(s.name))
}

// unlockReleasedAgain has the backend end a hold that it has ended before, as who
// is in doubt does: the next hold of the same client stays.
func unlockReleasedAgain(s *scenario) {
	a, b := s.open(), s.open()
	ask := func(seq uint64) *backend.Hold {
		h, err := a.Backend.Acquire(s.ctx, backend.Request{
			Name: s.name, ID: backend.ID{Client: s.sub("client"), Seq: seq}, Mode: backend.Exclusive,
			TTL: 10 * s.TTL, Wait: true, Observer: deaf{},
		})
		s.ok(err)
		return h
	}
	first := ask(1)
	s.ok(a.Backend.Release(s.ctx, first))
	second := ask(2)
	err := a.Backend.Release(s.ctx, first)
	s.must(err == nil || errors.Is(err, backend.ErrLost), "released again: %v", err)
	s.held(b.Mutex(s.name))
	s.ok(a.Backend.Release(s.ctx, second))
	s.free(b.Mutex(s.name))
}

// unlockSaysLost has the backend end a hold that is over.
func unlockSaysLost(s *scenario) {
	d := s.direct(s.open())
	h := d.take(s.name)
	s.Evict(s.TB, s.name)
	s.eventually("the release of a hold that is over says so", func() bool {
		err := d.peer.Backend.Release(s.ctx, h)
		s.must(err != nil, "the release of a hold that is over says that all was well")
		return errors.Is(err, backend.ErrLost)
	})
}
