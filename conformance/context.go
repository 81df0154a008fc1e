package conformance

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func contextDoneBefore(s *scenario) {
	p := s.open()
	ctx, cancel := context.WithCancelCause(s.ctx)
	cancel(errTest)
	before := s.ops()
	for _, try := range []func(context.Context) (*dlock.Lease, error){p.Mutex(s.name).Lock, p.Mutex(s.name).TryLock} {
		_, err := try(ctx)
		s.is(err, errTest)
		s.not(err, dlock.ErrHeld, dlock.ErrUnavailable)
	}
	s.must(s.ops() == before, "a call with a done context sent %d requests", s.ops()-before)
}

// errOtherLost is the cause of a context that the loss of some other lock has ended.
var errOtherLost = backend.Fail(backend.ErrLost, errTest)

func contextCancelWhileWaiting(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	for _, why := range []error{errTest, errOtherLost} {
		call := s.queue(b.Mutex(s.name), s.name, 1)
		call.cancel(why)
		s.is(call.failed(), dlock.ErrHeld, errTest)
		s.queued(s.name, 0)
	}
	s.unlock(lease)
	s.free(b.Mutex(s.name))
}

// contextCancelAtGrant cancels a waiting call at the moment it is granted,
// many times. Whatever comes of it, there is one outcome.
func contextCancelAtGrant(s *scenario) {
	a, b := s.open(), s.open()
	deadline := time.Now().Add(8 * time.Second)
	granted, failed := 0, 0
	for i := 0; i < 1000 && time.Now().Before(deadline); i++ {
		lease := s.locked(a.Mutex(s.name))
		call := s.start(b.Mutex(s.name))
		if i%4 != 0 {
			s.queued(s.name, 1)
		}
		go call.cancel(errTest)
		s.unlock(lease)
		s.done("returned", call.ready)
		switch {
		case call.err == nil && call.lease != nil:
			granted++
			s.unlock(call.lease)
		case call.err != nil && call.lease == nil:
			failed++
			s.is(call.err, errTest)
		default:
			s.Fatalf("lease %v and error %v", call.lease, call.err)
		}
	}
	s.freed(a.Mutex(s.name))
	s.queued(s.name, 0)
	s.Logf("%d granted, %d cancelled", granted, failed)
}

func contextDoesNotBoundHold(s *scenario) {
	a, b := s.open(), s.open()
	ctx, cancel := context.WithCancel(s.ctx)
	lease, err := a.Mutex(s.name).Lock(ctx)
	s.ok(err)
	cancel()
	s.pass(2 * s.TTL)
	s.alive(lease)
	s.held(b.Mutex(s.name))
	s.unlock(lease)
}

func contextDeadline(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
	defer cancel()
	_, err := b.Mutex(s.name).Lock(ctx)
	s.must(ctx.Err() != nil, "the call returned before its deadline: %v", err)
	s.is(err, context.DeadlineExceeded)
	s.queued(s.name, 0)
	s.unlock(lease)
}

func contextMaxWait(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	start, wait := time.Now(), s.TTL/2
	_, err := b.Mutex(s.name, dlock.WithMaxWait(wait)).Lock(s.ctx)
	s.is(err, dlock.ErrHeld, context.DeadlineExceeded)
	s.must(time.Since(start) >= wait, "waited for %v only", time.Since(start))
	s.ok(s.ctx.Err())
	s.queued(s.name, 0)
	s.unlock(lease)
}

// contextDeadlineOfAnother has contexts say a deadline that is over, and never end: a program may have made
// them from one that it goes on without.
func contextDeadlineOfAnother(s *scenario) {
	p := s.open()
	over, cancel := context.WithTimeout(s.ctx, time.Microsecond)
	defer cancel()
	<-over.Done()
	from, end := context.WithCancel(endless{over})
	defer end()
	for _, ctx := range []context.Context{endless{over}, from} {
		lease, err := p.Mutex(s.name).Lock(ctx)
		s.ok(err)
		if _, err = p.Inspect(ctx, s.name); !errors.Is(err, dlock.ErrUnsupported) {
			s.ok(err)
		}
		s.ok(lease.Unlock(ctx))
		lease, err = p.Mutex(s.name).TryLock(ctx)
		s.ok(err)
		s.ok(lease.Unlock(ctx))
	}
}

// endless is a context that never ends, and has the deadline of the one it was made from.
type endless struct{ context.Context }

func (endless) Done() <-chan struct{} { return nil }
func (endless) Err() error            { return nil }

func contextNextWaiterUnaffected(s *scenario) {
	peers := s.opens(3)
	lease := s.locked(peers[0].Mutex(s.name))
	first := s.queue(peers[1].Mutex(s.name), s.name, 1)
	second := s.queue(peers[2].Mutex(s.name), s.name, 2)
	first.cancel(errTest)
	s.is(first.failed(), dlock.ErrHeld)
	s.queued(s.name, 1)
	second.waits("cancelling the first of the queue let in the second")
	s.unlock(lease)
	s.unlock(second.granted())
}

// contextWhileUnanswered cancels calls that the server has not answered. Whatever the cause
// says of other locks and other requests, nothing is known of this one.
func contextWhileUnanswered(s *scenario) {
	p := s.open()
	if s.unable(p.Cut == nil, "Cut") {
		return
	}
	causes := []error{
		errTest, errOtherLost, dlock.ErrLost, dlock.ErrClosed, backend.Fail(dlock.ErrHeld, errTest),
		backend.Fail(dlock.ErrAuth, errTest), &net.OpError{Op: "dial", Err: errTest},
	}
	held := make([]*dlock.Lease, len(causes))
	for i := range causes {
		held[i] = s.locked(p.Mutex(s.sub(i), dlock.WithTTL(20*s.TTL)))
	}
	heal := p.Cut()
	for i, why := range causes {
		call := func(f func(context.Context) error) error {
			ctx, cancel := context.WithTimeoutCause(s.ctx, 100*time.Millisecond, why)
			defer cancel()
			err := f(ctx)
			if e, ok := err.(*dlock.Error); !ok || e.Kind != dlock.ErrUnavailable {
				s.Errorf("a call with the cause %q failed with %q", why, err)
			}
			return err
		}
		s.is(call(func(ctx context.Context) error { _, err := p.Mutex(s.name).Lock(ctx); return err }), why)
		call(held[i].Unlock)
	}
	heal()
	s.recovers(p.Mutex(s.name))
}

// recovers waits until l can be had after a cut, and gives it back.
func (s *scenario) recovers(l dlock.Locker) {
	s.Helper()
	s.eventually("free after the cut", func() bool {
		lease, err := l.TryLock(s.ctx)
		if err != nil {
			s.must(errors.Is(err, dlock.ErrHeld) || errors.Is(err, dlock.ErrUnavailable), "try: %v", err)
			return false
		}
		s.unlock(lease)
		return true
	})
}

// contextBehindUnanswered has calls of one client wait behind one that the server does
// not answer: nobody knows whether the lock is held.
func contextBehindUnanswered(s *scenario) {
	p := s.open()
	if s.unable(p.Cut == nil, "Cut") {
		return
	}
	heal := p.Cut()
	ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
	defer cancel()
	l, told := p.Mutex(s.name), make(chan error)
	for _, take := range []func(context.Context) (*dlock.Lease, error){l.Lock, l.Lock, l.TryLock} {
		go func() { _, err := take(ctx); told <- err }()
	}
	for range 3 {
		err := <-told
		s.not(err, dlock.ErrHeld)
		s.is(err, dlock.ErrUnavailable)
	}
	heal()
	s.recovers(l)
}

// contextCancelledWaiterIsGone lets a waiter's context end. The server forgets the
// waiter at once, not when it misses its signs of life, and goes on with the next.
func contextCancelledWaiterIsGone(s *scenario) {
	a, b, c := s.open(), s.open(), s.open()
	for range 3 {
		lease := s.locked(a.Mutex(s.name))
		gone := s.queue(b.Mutex(s.name), s.name, 1)
		gone.cancel(errTest)
		s.is(gone.failed(), dlock.ErrHeld, errTest)
		s.soon(s.TTL/4, "nobody waits", func() bool { return s.Waiting(s.TB, s.name) == 0 })
		next := s.queue(c.Mutex(s.name), s.name, 1)
		s.unlock(lease)
		s.within(s.TTL/4, "the next is granted after a waiter has left", next.ready)
		s.unlock(next.granted())
	}
}

// contextCancelledGrantIsGone lets a waiter's context end when it is granted: the
// grant is given back at once.
func contextCancelledGrantIsGone(s *scenario) {
	a, b, c := s.open(), s.open(), s.open()
	for i := range 10 {
		lease := s.locked(a.Mutex(s.name))
		ctx, cancel := context.WithCancel(s.ctx)
		first := s.startCtx(ctx, b.Mutex(s.name))
		s.queued(s.name, 1)
		next := s.queue(c.Mutex(s.name), s.name, 2)
		if i%2 == 0 {
			cancel()
		} else {
			go cancel()
		}
		s.unlock(lease)
		if s.done("returned", first.ready); first.err == nil {
			s.unlock(first.lease)
		}
		s.within(s.TTL/4, "the next is granted after a waiter has left with its grant", next.ready)
		s.unlock(next.granted())
		cancel()
	}
}
