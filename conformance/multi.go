package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
)

// doFences checks that the lease reaches the function, and ends with it.
func doFences(s *scenario) {
	l := s.open().Mutex(s.name)
	var lease *dlock.Lease
	err := dlock.Do(s.ctx, l, func(ctx context.Context, got *dlock.Lease) error {
		lease = got
		s.must(got.Token() != 0, "no token")
		_, held := l.Held(ctx)
		s.must(held, "the function's context does not hold the lock")
		return nil
	})
	s.ok(err)
	s.is(lease.Err(), dlock.ErrUnlocked)
	s.free(l)
}

// doLostThoughNil loses the lock under a function that does not notice.
func doLostThoughNil(s *scenario) {
	err := dlock.Do(s.ctx, s.open().Mutex(s.name), func(ctx context.Context, lease *dlock.Lease) error {
		s.Evict(s.TB, s.name)
		s.lost(lease)
		return nil
	})
	s.is(err, dlock.ErrLost)
}

func doCauseOnLoss(s *scenario) {
	err := dlock.Do(s.ctx, s.open().Mutex(s.name), func(ctx context.Context, _ *dlock.Lease) error {
		s.Evict(s.TB, s.name)
		s.done("context ended", ctx.Done())
		return context.Cause(ctx)
	})
	s.is(err, dlock.ErrLost)
}

func doJoinsErrors(s *scenario) {
	l := s.open().Mutex(s.name)
	err := dlock.Do(s.ctx, l, func(context.Context, *dlock.Lease) error { return errTest })
	s.must(err == errTest, "got %v", err)
	err = dlock.Do(s.ctx, l, func(_ context.Context, lease *dlock.Lease) error {
		s.Evict(s.TB, s.name)
		s.lost(lease)
		return errTest
	})
	s.is(err, dlock.ErrLost, errTest)
}

func doUnlocksOnPanic(s *scenario) {
	a, b := s.open(), s.open()
	for _, do := range []func(context.Context, dlock.Locker, func(context.Context, *dlock.Lease) error) error{dlock.Do, dlock.TryDo} {
		got := func() (p any) {
			defer func() { p = recover() }()
			return do(s.ctx, a.Mutex(s.name), func(context.Context, *dlock.Lease) error { panic(errTest) })
		}()
		s.must(got == errTest, "the panic became %v", got)
		s.free(b.Mutex(s.name))
	}
}

func tryDoSkips(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	run := false
	f := func(context.Context, *dlock.Lease) error { run = true; return nil }
	s.is(dlock.TryDo(s.ctx, b.Mutex(s.name), f), dlock.ErrHeld)
	s.must(!run, "the function ran without the lock")
	s.unlock(lease)
	s.ok(dlock.TryDo(s.ctx, b.Mutex(s.name), f))
	s.must(run, "the function did not run")
}

// leadTerms loses the lock twice under a leader.
func leadTerms(s *scenario) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	terms := make(chan *dlock.Lease)
	ended := make(chan error, 1)
	go func() {
		ended <- dlock.Lead(ctx, s.open().Mutex(s.name), func(ctx context.Context, lease *dlock.Lease) error {
			select {
			case terms <- lease:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	var last uint64
	for range 3 {
		select {
		case lease := <-terms:
			s.must(lease.Token() > last, "token %d came after %d", lease.Token(), last)
			last = lease.Token()
			s.Evict(s.TB, s.name)
			s.lost(lease)
		case err := <-ended:
			s.Fatalf("Lead returned: %v", err)
		case <-s.ctx.Done():
			s.Fatal("no new term")
		}
	}
	cancel(errTest)
	select {
	case err := <-ended:
		s.must(errors.Is(err, errTest), "Lead returned %v", err)
	case <-s.ctx.Done():
		s.Fatal("Lead does not end")
	}
	s.freed(s.open().Mutex(s.name))
}

func leadStopsOnError(s *scenario) {
	l := s.open().Mutex(s.name)
	err := dlock.Lead(s.ctx, l, func(context.Context, *dlock.Lease) error { return errTest })
	s.must(err == errTest, "Lead returned %v", err)
	s.free(l)
}

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
	waiting := s.queue(a.Multi([]string{y, x}), y, 1)
	waiting.cancel(errTest)
	s.is(waiting.failed(), dlock.ErrHeld, errTest)
	s.freed(b.Mutex(x))
	s.unlock(only)
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

// wantedIsTold checks that a holder hears of another client that waits, where
// the backend can tell.
func wantedIsTold(s *scenario) {
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	wanted := lease.Wanted()
	if s.na(wanted == nil, "the backend does not tell of waiters") {
		return
	}
	next := s.queue(b.Mutex(s.name), s.name, 1)
	s.within(2*s.TTL, "told that somebody waits", wanted)
	s.unlock(lease)
	s.unlock(next.granted())
}
