package conformance

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
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

// leadSilentServer ends a candidate whose server does not answer.
func leadSilentServer(s *scenario) {
	p := s.open()
	if s.unable(p.Cut == nil, "Cut") {
		return
	}
	heal := p.Cut()
	defer heal()
	ctx, cancel := context.WithCancelCause(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := dlock.Lead(ctx, p.Mutex(s.name), func(context.Context, *dlock.Lease) error { return nil })
		if !errors.Is(err, errTest) {
			s.Errorf("Lead returned %v", err)
		}
	}()
	s.pass(s.TTL / 4)
	cancel(errTest)
	s.within(backend.FirstAnswer+s.TTL, "Lead ends with its context", ended)
}
