package dlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/renewal"
)

// A Multi is several locks that are taken together, exclusively: all or none. It never
// deadlocks with another Multi, because each takes its locks in the order of their names.
type Multi struct {
	all Mutex
}

var _ Locker = (*Multi)(nil)

// Multi returns a Locker of all the names together; duplicates are dropped.
// Its lease is lost when one of the locks is. WithMaxHold and WithMinHold count from when
// all are held: the wait for one of them costs none of the others. Multi never fails: a bad
// name or option is the error of every call on it.
func (c *Client) Multi(names []string, o ...Option) *Multi {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	all := &lock{settings: c.settings(o), client: c, name: strings.Join(names, " ")}
	var problems []error
	if len(names) == 0 {
		problems = append(problems, backend.Fail(ErrInvalidName, errors.New("no names")))
	}
	for _, name := range names {
		part := c.newLock(name, all.settings)
		all.parts = append(all.parts, part)
		problems = append(problems, part.err)
	}
	all.err = backend.Join(problems...)
	return &Multi{Mutex{all}}
}

// Lock waits until all locks are held or ctx is done; see Locker.
func (m *Multi) Lock(ctx context.Context) (*Lease, error) {
	return m.mutex().Lock(ctx)
}

// TryLock takes all locks if all are free. Otherwise it takes none and fails
// with ErrHeld.
func (m *Multi) TryLock(ctx context.Context) (*Lease, error) {
	return m.mutex().TryLock(ctx)
}

func (m *Multi) mutex() *Mutex {
	if m == nil {
		return nil
	}
	return &m.all
}

// enterAll enters the locks of a Multi, again and again while one of them is lost
// meanwhile.
func (l *lock) enterAll(ctx context.Context, r request) (*Lease, error) {
	for {
		lease, err := l.takeAll(ctx, r)
		if !errors.Is(err, ErrLost) || !r.wait || ctx.Err() != nil {
			return lease, err
		}
	}
}

// takeAll takes the locks one after the other. It stops, and gives back what
// it has, at the first that fails, also if one that it has is lost meanwhile.
func (l *lock) takeAll(ctx context.Context, r request) (_ *Lease, err error) {
	if r.call != nil {
		r.call.handOver = NoHandOver // how the locks came that were lost since does not count
	}
	all := &multiLease{lifecycle: lifecycle{lock: l}}
	handle := &multiHandle{multiLease: all}
	waitCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all.bindContext(waitCtx, cancel)
	taken := false
	defer func() {
		if !taken {
			l.client.undo(ctx, r, err, all.discard)
		}
	}()
	each := r
	each.part = true
	for _, one := range l.parts {
		var part *Lease
		if part, err = one.enterOne(waitCtx, each); err == nil {
			handle.parts = append(handle.parts, part)
			err = all.add(part.of.(*entry)).during(r.op, l.name)
		}
		if err != nil {
			return nil, err
		}
	}
	all.startHold()
	if err = all.reason().during(r.op, l.name); err != nil {
		return nil, err
	}
	taken = true
	return &Lease{handle}, nil
}

// A multiLease is a lease on each lock of a Multi.
type multiLease struct {
	lifecycle

	// Guarded by lifecycle.mu. Each part is released and notified once: the end of a
	// multi-lock of very many names takes time in proportion to them.
	parts    []*entry // grows while the locks are acquired
	released int      // number of parts whose release has begun
	notified int      // number of parts that are notified, or about to be

	wantedOnce sync.Once
	wanted     chan struct{}
}

// A multiHandle is what a program has of a multiLease. It alone refers to the leases
// on the locks: when nobody refers to it any more, each of them is found dropped.
type multiHandle struct {
	*multiLease
	parts []*Lease
}

var _ leased = (*multiHandle)(nil)

func (a *multiLease) token() uint64  { return 0 }
func (a *multiLease) isShared() bool { return false }

// add makes e a part of a. It returns why a is over, nil if that is not known here.
func (a *multiLease) add(e *entry) *reason {
	a.mu.Lock()
	a.parts = append(a.parts, e)
	a.mu.Unlock()
	e.group.Store(a)
	return a.endWith(e)
}

// startHold begins the maximum and the minimum hold of all locks that a has taken, at one
// moment. A lock that it has entered again keeps those of its hold.
func (a *multiLease) startHold() {
	if a.lock.isUnbounded() {
		return
	}
	var items []*renewal.Item
	for _, part := range a.members() {
		if part.parent == nil {
			items = append(items, &part.hold.item)
		}
	}
	a.lock.client.keeper.Restart(items, a.lock.maxHold)
}

func (a *multiLease) members() []*entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parts
}

func (a *multiLease) check() {
	for _, part := range a.members() {
		part.check()
	}
}

// reason is why the lease is over: because it was unlocked, or because one of the
// locks is over.
func (a *multiLease) reason() *reason {
	if r := a.over.Load(); r != nil {
		return r
	}
	for _, part := range a.members() {
		if r := a.endWith(part); r != nil {
			return r
		}
	}
	return nil
}

// endWith ends a if part is over. It returns why a is over, or nil.
func (a *multiLease) endWith(part *entry) *reason {
	if r := part.reasonHere(); r != nil {
		return a.endFor(part, r)
	}
	return a.over.Load()
}

// endFor ends a because part ends for r.
func (a *multiLease) endFor(part *entry, r *reason) *reason {
	return a.setReason(&reason{r.kind, r.on(part.lock.name)})
}

// notify closes Done and ends the contexts of a and of each of its leases.
func (a *multiLease) notify(othersWait bool) {
	if a.reason() == nil {
		return
	}
	a.lifecycle.notify(othersWait)
	for _, part := range a.takeNew(&a.notified) {
		part.reason()
		part.lifecycle.notify(othersWait)
	}
}

// memberLost releases all the locks when one of them is lost: the lease is over as a
// whole. A caller of Unlock does that itself.
func (a *multiLease) memberLost() {
	if a.reason() == unlocked {
		return
	}
	parts := a.takeNew(&a.released)
	if len(parts) == 0 {
		return
	}
	a.lock.client.janitor.Go(func(ctx context.Context) {
		_ = a.release(ctx, parts)
		a.tellEnd(ctx, a.reason().on(a.lock.name))
	})
}

// part returns the lease on the lock of that name, nil if that is none of the locks.
func (h *multiHandle) part(fullName string) *Lease {
	i, found := slices.BinarySearchFunc(h.parts, fullName, func(part *Lease, name string) int {
		return cmp.Compare(part.of.life().lock.fullName, name)
	})
	if !found {
		return nil
	}
	return h.parts[i]
}

// takeNew returns the parts that nobody has taken by the same count, which is released
// or notified. There can be several rounds: a part may be added after another was lost.
func (a *multiLease) takeNew(taken *int) []*entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := a.parts[*taken:]
	*taken = len(a.parts)
	return parts
}

// unlock gives the locks back. Another call gives back those that have come since.
func (a *multiLease) unlock(ctx context.Context) error {
	parts := a.takeNew(&a.released)
	if len(parts) == 0 {
		return nil
	}
	return a.release(ctx, parts)
}

// release gives back the locks of parts, together where that can be.
func (a *multiLease) release(ctx context.Context, parts []*entry) error {
	var mu sync.Mutex
	var errs []error
	note := func(part *entry, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, newError("unlock", part.lock.name, err))
		}
	}
	ctx, cancel := parts[0].hold.releaseContext(ctx)
	defer cancel()
	var last []*hold
	for _, part := range slices.Backward(parts) {
		if part.tryHandOver() {
			continue
		}
		switch off, err := part.leaveHold(ctx); {
		case !off:
			note(part, err)
		case part.lock.minHold > 0:
			note(part, part.hold.releaseAfterMinHold(ctx))
		default:
			last = append(last, part.hold)
		}
	}
	a.lock.client.releaseHolds(ctx, last, func(h *hold, err error) {
		if !h.noteReleased(err) {
			h.logUnconfirmedRelease(err)
		}
		note(&h.first, err)
	})
	return backend.Join(errs...)
}

// discard unlocks a lease that no caller has received.
func (a *multiLease) discard(ctx context.Context) {
	endUnlocked(a)
	a.skipMinHold()
	_ = a.unlock(ctx)
}

func (a *multiLease) skipMinHold() {
	for _, part := range a.members() {
		part.skipMinHold()
	}
}

// until returns the first end of a member.
func (a *multiLease) until() (first time.Time) {
	for _, part := range a.members() {
		if end := part.until(); first.IsZero() || !end.IsZero() && end.Before(first) {
			first = end
		}
	}
	return first
}

// wantedChan watches all the locks, from the first call until the lease ends.
func (a *multiLease) wantedChan() <-chan struct{} {
	a.wantedOnce.Do(func() {
		var each []<-chan struct{}
		for _, part := range a.members() {
			ch := part.wantedChan()
			if ch == nil {
				return
			}
			each = append(each, ch)
		}
		a.wanted = make(chan struct{})
		var once sync.Once
		for _, ch := range each {
			go func() {
				select {
				case <-ch:
					once.Do(func() { close(a.wanted) })
				case <-a.doneChan():
				}
			}()
		}
	})
	return a.wanted
}
