package memory

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errNoReply is the cause of a failure that DropReply asked for.
var errNoReply = errors.New("the reply was lost")

// Cut cuts this client off: none of its calls gets an answer until Heal. What
// it holds runs out on the server meanwhile.
func (b *Backend) Cut() { b.link.cut() }

// Heal ends Cut.
func (b *Backend) Heal() { b.link.heal() }

// Delay holds back what the server answers to this client from now on, for d
// each. Zero ends it, and lets through what is held back.
func (b *Backend) Delay(d time.Duration) { b.late.set(d) }

// FailNext makes the next call fail with err before it reaches the server.
func (b *Backend) FailNext(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failNext = err
	b.planned.Store(true)
}

// DropReply makes the next call but Renew take effect and fail all the same, as if
// its reply had been lost. Acquire clears up after itself then.
func (b *Backend) DropReply() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropReply = true
	b.planned.Store(true)
}

// up reports whether a call would get through at once.
func (b *Backend) up() bool { return b.link.up() && b.server.link.up() }

// send carries a request to the server, when it can be reached.
func (b *Backend) send(ctx context.Context, until time.Time) error {
	select {
	case <-b.closed:
		return backend.ErrClosed
	default:
	}
	if b.planned.Load() {
		if err := b.takeFailure(); err != nil {
			return err
		}
	}
	b.server.ops.Add(1)
	return b.reach(ctx, until)
}

// receive carries the reply back.
func (b *Backend) receive(ctx context.Context, until time.Time) error {
	if b.planned.Load() && b.takeDrop() {
		return backend.Fail(backend.ErrUnavailable, errNoReply)
	}
	if err := b.late.wait(ctx, until, b.closed); err != nil {
		return err
	}
	return b.reach(ctx, until)
}

func (b *Backend) takeFailure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.failNext
	b.failNext = nil
	b.planned.Store(b.dropReply)
	return err
}

func (b *Backend) takeDrop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	drop := b.dropReply
	b.dropReply = false
	b.planned.Store(b.failNext != nil)
	return drop
}

// reach waits until client and server are connected, until then at most if that
// is not zero.
func (b *Backend) reach(ctx context.Context, until time.Time) error {
	if err := b.link.wait(ctx, until, b.closed); err != nil {
		return err
	}
	return b.server.link.wait(ctx, until, b.closed)
}

// A lateness holds back answers. The zero value holds back none.
type lateness struct {
	now atomic.Pointer[delay]
}

type delay struct {
	length time.Duration
	over   chan struct{}
}

func (l *lateness) set(d time.Duration) {
	var next *delay
	if d > 0 {
		next = &delay{d, make(chan struct{})}
	}
	if last := l.now.Swap(next); last != nil {
		close(last.over)
	}
}

// wait returns when an answer that has been given by now arrives, or fails when
// ctx or the client ends.
func (l *lateness) wait(ctx context.Context, until time.Time, closed <-chan struct{}) error {
	d := l.now.Load()
	if d == nil {
		return nil
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	arrival := time.NewTimer(d.length)
	defer arrival.Stop()
	select {
	case <-arrival.C:
		return nil
	case <-d.over:
		return nil
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	case <-closed:
		return backend.ErrClosed
	}
}

// A link is a connection that can be down. The zero link is up.
type link struct {
	down atomic.Pointer[outage]
}

type outage struct{ over chan struct{} }

func (l *link) cut() {
	l.down.CompareAndSwap(nil, &outage{make(chan struct{})})
}

func (l *link) heal() {
	if o := l.down.Swap(nil); o != nil {
		close(o.over)
	}
}

func (l *link) up() bool { return l.down.Load() == nil }

// wait returns when the link is up, or fails when ctx or the client ends.
func (l *link) wait(ctx context.Context, until time.Time, closed <-chan struct{}) error {
	o := l.down.Load()
	if o == nil {
		return nil
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	select {
	case <-o.over:
		return nil
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	case <-closed:
		return backend.ErrClosed
	}
}
