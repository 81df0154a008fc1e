package dlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// A Multi is several locks that are taken together: all or none. Whoever
// asks for the same locks in whatever order waits for each other, and never
// for ever, because every Multi takes its locks in the order of their names.
type Multi struct {
	*settings
	client *Client
	name   string // of all locks, for errors
	locks  []*lock
	err    error
}

var _ Locker = (*Multi)(nil)

// Multi returns a Locker of all the names together; duplicates are dropped.
// Its lease is lost when one of the locks is. It never fails: a bad name or
// option is the error of every call on it.
func (c *Client) Multi(names []string, o ...Option) *Multi {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	m := &Multi{settings: c.settings(o), client: c, name: strings.Join(names, " ")}
	if len(names) == 0 {
		m.err = backend.Fail(ErrInvalidName, errors.New("no names"))
	}
	each := m.settings
	if each != nil && each.maxWait > 0 { // that bounds the wait for all together
		copied := *each
		copied.maxWait, each = 0, &copied
	}
	for _, name := range names {
		l := c.newLock(name, each)
		m.locks = append(m.locks, l)
		m.err = errors.Join(m.err, l.err)
	}
	return m
}

// Lock waits until all locks are held or ctx is done; see Locker.
func (m *Multi) Lock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, request{"lock", backend.Exclusive, true})
}

// TryLock takes all locks if all are free. Otherwise it takes none and fails
// with ErrHeld.
func (m *Multi) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, request{"trylock", backend.Exclusive, false})
}

func (m *Multi) acquire(ctx context.Context, r request) (*Lease, error) {
	switch {
	case m == nil || m.client == nil && m.err == nil:
		return nil, newError(r.op, "", backend.Fail(ErrInvalidConfig, errZeroMutex))
	case m.err != nil:
		return nil, newError(r.op, m.name, m.err)
	case ctx == nil:
		return nil, newError(r.op, m.name, errNilContext)
	}
	if r.wait && m.maxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = backend.Bound(ctx, m.maxWait)
		defer cancel()
	}
	for {
		lease, err := m.takeAll(ctx, r)
		if !errors.Is(err, ErrLost) || !r.wait || ctx.Err() != nil {
			return lease, err
		}
	}
}

// takeAll takes the locks one after the other. It stops, and gives back what
// it has, at the first that fails, also if one that it has is lost meanwhile.
func (m *Multi) takeAll(ctx context.Context, r request) (*Lease, error) {
	all := &multiLease{multi: m}
	handle := &multiHandle{multiLease: all}
	waitCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, l := range m.locks {
		part, err := l.acquire(waitCtx, r)
		if err != nil {
			m.client.undo(ctx, all.withdraw)
			return nil, err
		}
		handle.parts = append(handle.parts, part)
		all.parts = append(all.parts, part.of.(*entry))
		part.of.ends().tell(l.name(), cancel)
	}
	for _, part := range all.parts {
		part.tell(part.lockName(), all.partEnded)
	}
	return &Lease{handle}, nil
}

// A multiLease is a lease on each lock of a Multi.
type multiLease struct {
	ending
	multi *Multi
	parts []*entry

	wantedOnce sync.Once
	wantedChan chan struct{}
}

// A multiHandle is what a program has of a multiLease. It alone refers to the leases
// on the locks: when nobody refers to it any more, each of them is found dropped.
type multiHandle struct {
	*multiLease
	parts []*Lease
}

var _ leased = (*multiHandle)(nil)

func (a *multiLease) ends() *ending    { return &a.ending }
func (a *multiLease) token() uint64    { return 0 }
func (a *multiLease) lockName() string { return a.multi.name }
func (a *multiLease) client() *Client  { return a.multi.client }

func (a *multiLease) check() {
	for _, part := range a.parts {
		part.check()
	}
}

// partEnded ends the lease when one of its locks is lost, and gives back the
// others: nobody counts on them any more.
func (a *multiLease) partEnded(why error) {
	if a.end(a.multi.name, kindOf(why, ErrLost), why) {
		a.multi.client.janitor.Go(func(ctx context.Context) { _ = a.unlock(ctx) })
	}
}

func (h *multiHandle) bind(ctx context.Context, _ *Lease) context.Context {
	for _, part := range h.parts {
		ctx = part.of.bind(ctx, part)
	}
	return ctx
}

func (a *multiLease) tokenOf(name string) uint64 {
	for _, part := range a.parts {
		if token := part.tokenOf(name); token != 0 {
			return token
		}
	}
	return 0
}

// unlock gives the locks back, the last one first.
func (a *multiLease) unlock(ctx context.Context) error {
	var errs []error
	for _, part := range slices.Backward(a.parts) {
		if err := (&Lease{part}).Unlock(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// withdraw is unlock of a lease that nobody has had.
func (a *multiLease) withdraw(ctx context.Context) {
	for _, part := range a.parts {
		if part.parent == nil {
			part.hold.cutShort()
		}
	}
	_ = a.unlock(ctx)
}

func (a *multiLease) pass() bool { return false }

func (a *multiLease) downgrade(context.Context) error { return ErrUnsupported }

// whenWanted watches all locks, from the first call until the lease ends.
func (a *multiLease) whenWanted() <-chan struct{} {
	a.wantedOnce.Do(func() {
		var each []<-chan struct{}
		for _, part := range a.parts {
			ch := part.whenWanted()
			if ch == nil {
				return
			}
			each = append(each, ch)
		}
		a.wantedChan = make(chan struct{})
		var once sync.Once
		for _, ch := range each {
			go func() {
				select {
				case <-ch:
					once.Do(func() { close(a.wantedChan) })
				case <-a.whenDone():
				}
			}()
		}
	})
	return a.wantedChan
}
