package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

func reentryCounts(s *scenario) {
	a, b := s.open(), s.open()
	l := a.Mutex(s.name)
	ctx, leases := s.ctx, []*dlock.Lease{}
	for range 3 {
		lease, err := l.Lock(ctx)
		s.ok(err)
		ctx = lease.Context(ctx)
		leases = append(leases, lease)
	}
	for i := 2; i >= 0; i-- {
		s.held(b.Mutex(s.name))
		s.unlock(leases[i])
	}
	s.free(b.Mutex(s.name))
}

// reentryOrder unlocks nested leases from the outside in, and mixed.
func reentryOrder(s *scenario) {
	a, b := s.open(), s.open()
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 0, 1}} {
		ctx, leases := s.ctx, []*dlock.Lease{}
		for range 3 {
			lease, err := a.Mutex(s.name).Lock(ctx)
			s.ok(err)
			ctx = lease.Context(ctx)
			leases = append(leases, lease)
		}
		for n, i := range order {
			s.held(b.Mutex(s.name))
			s.alive(leases[i])
			s.unlock(leases[i])
			s.must(leases[i].Err() != nil, "an unlocked lease lasts")
			if n < 2 {
				s.alive(leases[order[2]])
			}
		}
		s.freed(b.Mutex(s.name))
	}
}

func reentryTryLock(s *scenario) {
	l := s.open().Mutex(s.name)
	outer := s.locked(l)
	inner, err := l.TryLock(outer.Context(s.ctx))
	s.ok(err)
	s.unlock(inner)
	s.unlock(outer)
}

func reentrySameToken(s *scenario) {
	l := s.open().Mutex(s.name)
	outer := s.locked(l)
	inner, err := l.Lock(outer.Context(s.ctx))
	s.ok(err)
	s.must(inner.Token() == outer.Token() && outer.Token() != 0, "tokens are %d and %d", outer.Token(), inner.Token())
	s.unlock(inner)
	s.unlock(outer)
}

// reentryNotBySibling has a goroutine contend with the context from before the
// lock.
func reentryNotBySibling(s *scenario) {
	l := s.open().Mutex(s.name)
	outer := s.locked(l)
	_ = outer.Context(s.ctx)
	s.held(l)
	sibling := s.start(l)
	s.unlock(outer)
	s.unlock(sibling.granted())
}

func reentryNotAcrossNames(s *scenario) {
	p := s.open()
	other := s.locked(p.Mutex(s.sub("other")))
	outer := s.locked(p.Mutex(s.name))
	ctx := outer.Context(s.ctx)
	_, err := p.Mutex(s.sub("other")).TryLock(ctx)
	s.is(err, dlock.ErrHeld)
	s.unlock(outer)
	s.unlock(other)
}

// reentryNotAcrossClients has another client contend with the lease's context.
func reentryNotAcrossClients(s *scenario) {
	a, b := s.open(), s.open()
	outer := s.locked(a.Mutex(s.name))
	_, err := b.Mutex(s.name).TryLock(outer.Context(s.ctx))
	s.is(err, dlock.ErrHeld)
	s.unlock(outer)
}

// reentrySiblingsExclude has children share one lease's context: they are one
// at a time, and each one's own calls nest.
func reentrySiblingsExclude(s *scenario) {
	l := s.open().Mutex(s.name)
	outer := s.locked(l)
	ctx := outer.Context(s.ctx)
	first, err := l.Lock(ctx)
	s.ok(err)
	_, err = l.TryLock(ctx)
	s.is(err, dlock.ErrHeld)
	s.unlock(first)
	var mu sync.Mutex
	inside, peak := 0, 0
	each(8, func(int) {
		for range 5 {
			err := dlock.Do(ctx, l, func(ctx context.Context, _ *dlock.Lease) error {
				mu.Lock()
				inside++
				peak = max(peak, inside)
				mu.Unlock()
				err := dlock.Do(ctx, l, func(context.Context, *dlock.Lease) error { return nil })
				mu.Lock()
				inside--
				mu.Unlock()
				return err
			})
			if err != nil {
				s.Errorf("nested: %v", err)
			}
		}
	})
	s.must(peak == 1, "%d siblings were inside at once", peak)
	s.alive(outer)
	s.unlock(outer)
}

func reentrySiblingReadersShare(s *scenario) {
	s.needs(Readers)
	l := s.open().RWMutex(s.name)
	outer := s.locked(l)
	ctx := outer.Context(s.ctx)
	one, err := l.RLock(ctx)
	s.ok(err)
	two, err := l.RLock(ctx)
	s.ok(err)
	_, err = l.TryLock(ctx)
	s.is(err, dlock.ErrHeld)
	s.unlock(one)
	s.unlock(two)
	s.unlock(outer)
}

func reentryHeld(s *scenario) {
	l := s.open().Mutex(s.name)
	_, ok := l.Held(s.ctx)
	s.must(!ok, "held before it was locked")
	outer := s.locked(l)
	ctx := outer.Context(s.ctx)
	got, ok := l.Held(ctx)
	s.must(ok && got.Token() == outer.Token(), "not held under the lease's context")
	_, ok = l.Held(s.ctx)
	s.must(!ok, "held outside the lease's context")
	s.unlock(outer)
	_, ok = l.Held(context.WithoutCancel(ctx))
	s.must(!ok, "held after unlock")
}

func reentryInnerKeepsWatchdog(s *scenario) {
	a, b := s.open(), s.open()
	outer := s.locked(a.Mutex(s.name))
	inner, err := a.Mutex(s.name).Lock(outer.Context(s.ctx))
	s.ok(err)
	s.unlock(inner)
	s.pass(2 * s.TTL)
	s.alive(outer)
	s.held(b.Mutex(s.name))
	s.unlock(outer)
	s.free(b.Mutex(s.name))
}

// reentryNeverShortens nests a short lock under a long one, and cuts the
// client off for longer than the short one lasts.
func reentryNeverShortens(s *scenario) {
	a, b := s.open(), s.open()
	if s.unable(a.Cut == nil, "Cut") {
		return
	}
	long := a.Mutex(s.name, dlock.WithTTL(20*s.TTL))
	outer := s.locked(long)
	inner, err := a.Mutex(s.name, dlock.WithTTL(s.TTL)).Lock(outer.Context(s.ctx))
	s.ok(err)
	s.unlock(inner)
	heal := a.Cut()
	s.pass(2 * s.TTL)
	heal()
	s.alive(outer)
	s.held(b.Mutex(s.name))
	s.unlock(outer)
}

func reentryAfterUnlock(s *scenario) {
	a, b := s.open(), s.open()
	l := a.Mutex(s.name)
	outer := s.locked(l)
	ctx := outer.Context(s.ctx)
	s.unlock(outer)
	_, err := l.Lock(ctx)
	s.is(err, dlock.ErrUnlocked)

	next := s.locked(b.Mutex(s.name))
	_, err = l.TryLock(context.WithoutCancel(ctx))
	s.is(err, dlock.ErrHeld)
	s.unlock(next)
	lease, err := l.Lock(context.WithoutCancel(ctx))
	s.ok(err)
	s.unlock(lease)
}

func reentryForbidden(s *scenario) {
	p := s.open()
	outer := s.locked(p.Mutex(s.name))
	ctx := outer.Context(s.ctx)
	_, err := p.Mutex(s.name, dlock.WithoutReentry()).Lock(ctx)
	s.is(err, dlock.ErrReentry)
	_, err = p.Mutex(s.name, dlock.WithoutReentry()).TryLock(ctx)
	s.is(err, dlock.ErrReentry)
	s.unlock(outer)
}

// reentryLostReply loses the reply to an entry. The count stays right: as many
// unlocks as there are leases free the lock.
func reentryLostReply(s *scenario) {
	a, b := s.open(), s.open()
	if s.unable(a.DropReply == nil, "DropReply") {
		return
	}
	outer := s.locked(a.Mutex(s.name))
	for range 5 {
		a.DropReply()
		inner, err := a.Mutex(s.name).Lock(outer.Context(s.ctx))
		if err == nil {
			err = inner.Unlock(s.ctx)
		}
		if err != nil {
			s.must(errors.Is(err, dlock.ErrUnavailable), "nested: %v", err)
		}
	}
	s.alive(outer)
	// A backend that does not tell the server of entries still has a reply to lose.
	if err := outer.Unlock(s.ctx); err != nil {
		s.is(err, dlock.ErrUnavailable)
	}
	s.freed(b.Mutex(s.name))
}

func reentryReadUnderWrite(s *scenario) {
	s.needs(Readers)
	a, b := s.open(), s.open()
	l := a.RWMutex(s.name)
	outer := s.locked(l)
	inner, err := l.RLock(outer.Context(s.ctx))
	s.ok(err)
	s.held(b.RWMutex(s.name).RLocker())
	s.unlock(outer)
	s.alive(inner)
	s.held(b.RWMutex(s.name))
	s.unlock(inner)
	s.free(b.RWMutex(s.name))
}

// reentryReadUnderRead re-enters behind a writer that waits: it must not wait
// for it.
func reentryReadUnderRead(s *scenario) {
	s.needs(Readers)
	a, b := s.open(), s.open()
	l := a.RWMutex(s.name)
	outer := s.rlocked(l)
	writer := s.queue(b.Mutex(s.name), s.name, 1)
	inner, err := l.RLock(outer.Context(s.ctx))
	s.ok(err)
	writer.waits("the writer got in beside a reader")
	s.unlock(outer)
	s.unlock(inner)
	s.unlock(writer.granted())
}

// reentryAfterLoss enters a lock again that the server has taken away.
func reentryAfterLoss(s *scenario) {
	p := s.open()
	outer := s.locked(p.Mutex(s.name))
	ctx := outer.Context(s.ctx)
	s.Evict(s.TB, s.name)
	s.lost(outer)
	start := time.Now()
	_, err := p.Mutex(s.name).Lock(ctx)
	s.is(err, dlock.ErrLost)
	s.must(time.Since(start) < limit, "late")
}

// reentryAfterEarlyUnlock unlocks an entry while one under it lasts: nobody else
// under the same lease gets in beside that.
func reentryAfterEarlyUnlock(s *scenario) {
	l := s.open().Mutex(s.name)
	outer := s.locked(l)
	ctx := outer.Context(s.ctx)
	child, err := l.Lock(ctx)
	s.ok(err)
	grandchild, err := l.Lock(child.Context(ctx))
	s.ok(err)
	s.unlock(child)
	if sibling, err := l.TryLock(ctx); err == nil {
		s.Fatalf("two exclusive leases last at once: %v and %v", grandchild.Err(), sibling.Err())
	}
	s.alive(grandchild)
	s.unlock(grandchild)
	sibling, err := l.TryLock(ctx)
	s.ok(err)
	s.unlock(sibling)
	s.unlock(outer)
}
