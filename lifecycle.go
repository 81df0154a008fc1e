package dlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// A lifecycle ends a lease: once, for one reason. The lease is over from the moment
// the reason is set, here or on the hold or multi-lock that it depends on. After that,
// notify closes Done and ends the contexts.
type lifecycle struct {
	lock   *lock
	over   atomic.Pointer[reason]      // nil: not over, as far as is noted here
	record atomic.Pointer[leaseRecord] // what the hooks are to be told of the end; nil: nothing

	mu       sync.Mutex
	done     signal    // sent by notify
	contexts *contexts // ended by notify; nil: none
}

// A reason is the kind of an end, with its cause or nil.
type reason struct{ kind, by error }

// unlocked is the reason of most ends.
var unlocked = &reason{kind: ErrUnlocked}

// err is r as one error.
func (r *reason) err() error { return backend.Fail(r.kind, r.by) }

// on is r as the error of the hold or lease on name, nil if there is no r.
func (r *reason) on(name string) error { return r.during("hold", name) }

// during is r as the error of the operation op on name, nil if there is no r.
func (r *reason) during(op, name string) error {
	if r == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Kind: r.kind, Err: r.by}
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (l *lifecycle) life() *lifecycle { return l }

// A signal is sent once. There is a channel for it only if somebody asks for that. The zero
// value has not been sent. A mutex of its owner guards it.
type signal struct{ ch chan struct{} }

func (s *signal) wasSent() bool { return s.ch == closedChan }

func (s *signal) send() {
	if s.ch != nil && !s.wasSent() {
		close(s.ch)
	}
	s.ch = closedChan
}

// channel returns a channel that is closed when s has been sent.
func (s *signal) channel() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// setReason ends the lease for r, unless r is nil or the lease has ended already. It
// returns why the lease has ended, the same on every call, or nil.
func (l *lifecycle) setReason(r *reason) *reason {
	if r == nil {
		return l.over.Load()
	}
	l.over.CompareAndSwap(nil, r)
	return l.over.Load()
}

// notify closes Done and ends the contexts of the lease, which is over. The
// first caller does the work. If othersWait, other leases end at the same moment, and
// very many contexts are left to a goroutine.
func (l *lifecycle) notify(othersWait bool) {
	l.mu.Lock()
	all := l.contexts
	l.contexts = nil
	l.done.send()
	l.mu.Unlock()
	switch {
	case all == nil:
	case othersWait && len(all.all) > manyContexts:
		go all.end(l.over.Load().on(l.lock.name))
	default:
		all.end(l.over.Load().on(l.lock.name))
	}
}

// doneChan returns the channel that notify closes.
func (l *lifecycle) doneChan() <-chan struct{} {
	if l.over.Load() != nil {
		return closedChan
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done.channel()
}

// bindContext makes the end of the lease end ctx by calling end. It calls end at once
// if the lease is over.
func (l *lifecycle) bindContext(ctx context.Context, end context.CancelCauseFunc) {
	l.mu.Lock()
	settled := l.done.wasSent()
	if !settled {
		if l.contexts == nil {
			l.contexts = new(contexts)
		}
		l.contexts.add(ctx, end)
	}
	l.mu.Unlock()
	if settled {
		end(l.over.Load().on(l.lock.name))
	}
}

// contexts are those that the end of one lease ends.
type contexts struct {
	all  []dependent
	full int // length at which ended contexts are removed
}

type dependent struct {
	context.Context
	end context.CancelCauseFunc
}

const (
	// fewContexts are kept without a look whether they have ended.
	fewContexts = 8

	// manyContexts take a fraction of a millisecond to end.
	manyContexts = 1000
)

// add keeps ctx. From time to time it forgets those that have ended by themselves,
// so that what is kept is in proportion to those that live.
func (c *contexts) add(ctx context.Context, end context.CancelCauseFunc) {
	if len(c.all) >= max(c.full, fewContexts) {
		c.all = slices.Clone(slices.DeleteFunc(c.all, func(d dependent) bool { return d.Err() != nil }))
		c.full = 2 * len(c.all)
	}
	c.all = append(c.all, dependent{ctx, end})
}

func (c *contexts) end(why error) {
	for _, d := range c.all {
		d.end(why)
	}
}
