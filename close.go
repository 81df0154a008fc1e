package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// closeTimeoutDone is how long Close takes at most when its context is done already.
	closeTimeoutDone = time.Second

	// maxCloseTimeout is how long it takes at most with a context that never ends. A
	// server that has not answered by then ends the holds by itself.
	maxCloseTimeout = 5 * time.Second
)

// Close unlocks every lease, ends every call that waits with ErrClosed, and
// closes the backend. The leases report ErrClosed at once, calls that wait in a queue
// on the server end last. Calls after the first do nothing and return nil.
//
// Close waits for what the server has to be told until ctx is done. If ctx has no
// deadline it waits for 5 s at most, or for the TTL if that is less but no less than
// 1 s; if ctx is done already, for 1 s. What has not been confirmed then is an
// ErrUnavailable that names the locks: the server ends them when their TTL is over. So it is
// of all of them, at once, where the program has closed the connections of the backend before.
// Where the backend cannot leave a lock behind, Close waits longer for what remains of
// WithMinHold, until ctx is done. Hooks that do not return, a logger or a backend, are left
// behind within a quarter of a second after that.
//
// Close ends the contexts of this client's leases. With one of them, or one made from it,
// Close waits until the context ends that was given to Lease.Context, or until the deadline
// of ctx. A function that cancels a context made from a lease's has no effect any more.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return newError("close", "", errNilContext)
	}
	if c == nil || c.backend == nil {
		return newError("close", "", backend.Fail(ErrInvalidConfig, errZeroClient))
	}
	holds, first := c.markClosed()
	if !first {
		return nil
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = backend.Detach(ctx, closeTimeoutDone)
		defer cancel()
	}
	ctx, cancel := c.outliveLeases(ctx)
	defer cancel()
	limit := c.closeTimeout(holds)
	releaseCtx, cancel := withLimit(ctx, limit)
	defer cancel()
	lastCtx, cancel := withLimit(ctx, limit+c.longestMinHold(holds))
	defer cancel()
	// Those that have ended already are lost, or an Unlock is under way.
	open, ended := divide(holds, func(h *hold) bool { return h.endLeases(closed) })
	var hook atomic.Pointer[hookPanic]
	releaseErr := waitAtMost(releaseCtx, func() error { c.releaseAll(releaseCtx, open, &hook); return nil })
	c.awaitUnlocks(releaseCtx, ended)
	minHoldErr := c.minHolds.Close(lastCtx)
	janitorErr := c.janitor.Close(lastCtx)
	keeperErr := waitAtMost(lastCtx, func() error { c.keeper.Close(); return nil })
	lateErr := c.late.Close(lastCtx)
	backendErr := waitAtMost(lastCtx, func() error { return c.backend.Close(lastCtx) })
	if p := hook.Load(); p != nil {
		panic(p.value)
	}
	err := c.unconfirmedError(cmp.Or(backendErr, releaseErr, janitorErr, lateErr, keeperErr))
	if err = cmp.Or(err, minHoldErr); err != nil {
		return newError("close", "", err)
	}
	return nil
}

// outliveLeases returns a context that ends as ctx does, but not with a lease of c: Close
// ends that, and the server has still to be told.
func (c *Client) outliveLeases(ctx context.Context) (context.Context, context.CancelFunc) {
	if chainOf(ctx) == nil {
		return ctx, func() {}
	}
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	c.follow(ctx, out, end)
	cancel := func() { end(nil) }
	if deadline, _ := ctx.Deadline(); backend.EndsByDeadline(ctx) {
		var cancelDeadline context.CancelFunc
		out, cancelDeadline = context.WithDeadline(out, deadline)
		return out, func() { cancelDeadline(); cancel() }
	}
	return out, cancel
}

// follow calls end when ctx ends or, if it ends with a lease of c, when what that lease's
// context was made from does. It stops when out ends.
func (c *Client) follow(ctx, out context.Context, end context.CancelCauseFunc) {
	stop := context.AfterFunc(ctx, func() {
		if ch := chainOf(ctx).endedWith(ctx, c); ch != nil {
			c.follow(ch.parent, out, end)
			return
		}
		end(context.Cause(ctx))
	})
	context.AfterFunc(out, func() { stop() })
}

// waitAtMost waits for f until ctx is done, and undoTimeout more so that f can notice.
// If f still has not returned, for example because a hook hangs, it goes on alone and
// waitAtMost returns an error.
func waitAtMost(ctx context.Context, f func() error) error {
	var err error
	done := make(chan struct{})
	go func() { defer close(done); err = f() }()
	if !awaitOrLeave(ctx, done) {
		return backend.Fail(ErrUnavailable, errStuck)
	}
	return err
}

// withLimit returns ctx with a deadline. If ctx has none, that is limit from now.
func withLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if backend.EndsByDeadline(ctx) {
		return backend.BoundPast(ctx, limit)
	}
	return backend.Bound(ctx, limit)
}

// closeTimeout is how long Close waits for the server to confirm the releases, if its
// context has no deadline.
func (c *Client) closeTimeout(holds []*hold) time.Duration {
	longest := c.opts.ttl()
	for _, h := range holds {
		longest = max(longest, h.lock.ttl)
	}
	return min(max(longest, closeTimeoutDone), maxCloseTimeout)
}

// longestMinHold is for how long this process must still keep some of the holds.
func (c *Client) longestMinHold(holds []*hold) (longest time.Duration) {
	for _, h := range holds {
		if rest := h.minHoldLeft(); !c.expires(rest) {
			longest = max(longest, rest)
		}
	}
	return longest
}

// closed is the reason for the end of all holds of a client that is closed.
var closed = &reason{kind: ErrClosed}

// markClosed fails all local waiters and all later calls, and returns the open holds.
// Goroutines that wait under a lease fail when the lease ends.
func (c *Client) markClosed() (holds []*hold, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	c.closed = true
	for _, state := range c.names {
		state.queue.FailAll(ErrClosed)
		holds = append(holds, state.holds...)
	}
	return holds, true
}

// releaseAll releases the holds, which are over, together. Those whose minimum hold goes
// on are released when that ends. Each is told of, by tellClosed, apart from the releases:
// a hook or a logger that does not return holds up none of these.
func (c *Client) releaseAll(ctx context.Context, holds []*hold, hook *atomic.Pointer[hookPanic]) {
	ends, told := make(chan holdEnd, len(holds)), make(chan struct{})
	go func() { defer close(told); c.tellClosed(ctx, ends, hook) }()
	// Those that this process keeps for their minimum hold are released by minHolds.
	resting, others := divide(holds, func(h *hold) bool { kept, _ := h.minHoldState(); return kept })
	c.releaseHolds(ctx, others, func(h *hold, err error) { ends <- holdEnd{h, err, !h.noteReleased(err)} })
	forEach(resting, func(h *hold) { ends <- holdEnd{h, h.releaseAfterMinHold(ctx), false} })
	close(ends)
	<-told
}

// A holdEnd is what has become of the release of a hold.
type holdEnd struct {
	*hold
	err  error
	logs bool // it is to be logged
}

// tellClosed logs what could not be released, and calls the hook Closed for each lease, for
// that of a multi-lock when all its locks are released. It stores the first panic in hook.
func (c *Client) tellClosed(ctx context.Context, ends <-chan holdEnd, hook *atomic.Pointer[hookPanic]) {
	tellEnd := func(n *lifecycle, err error) {
		apart(func() {
			defer func() {
				if v := recover(); v != nil {
					hook.CompareAndSwap(nil, &hookPanic{v})
				}
			}()
			n.tellEnd(ctx, (&reason{ErrClosed, err}).on(n.lock.name))
		})
	}
	var mu sync.Mutex
	groups := make(map[*multiLease][]error)
	tell := func(h *hold, err error) {
		single, multi := h.leasesToTell()
		for _, e := range single {
			tellEnd(&e.lifecycle, err)
		}
		if err != nil {
			err = newError("unlock", h.lock.name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, g := range multi {
			groups[g] = append(groups[g], err)
		}
	}
	var tellers sync.WaitGroup
	for range min(cap(ends), releasers) {
		tellers.Go(func() {
			for e := range ends {
				if e.logs {
					e.logUnconfirmedRelease(e.err)
				}
				tell(e.hold, e.err)
			}
		})
	}
	tellers.Wait()
	for g, errs := range groups {
		tellEnd(&g.lifecycle, backend.Join(errs...))
	}
}

// awaitUnlocks waits until the calls of Unlock under way have released their holds, and
// notes those that have not when ctx is done. Janitors release lost holds and those that
// are kept for their minimum.
func (c *Client) awaitUnlocks(ctx context.Context, ended []*hold) {
	for _, h := range ended {
		if kept, _ := h.minHoldState(); kept || !h.overBy(ErrUnlocked) {
			continue
		}
		c.mu.Lock()
		removed := h.removed.channel()
		c.mu.Unlock()
		select {
		case <-removed:
		case <-ctx.Done():
			c.noteUnconfirmed(true, h)
		}
	}
}

// noteUnconfirmed records whether the server has still to confirm the release of
// holds.
func (c *Client) noteUnconfirmed(yes bool, holds ...*hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if yes && c.unconfirmed == nil {
		c.unconfirmed = make(map[*hold]struct{})
	}
	for _, h := range holds {
		if yes {
			c.unconfirmed[h] = struct{}{}
		} else {
			delete(c.unconfirmed, h)
		}
	}
}

// manyNames is how many names an error lists.
const manyNames = 5

// unconfirmedError returns an error that names the locks whose release the server has
// not confirmed, with err as its cause. It returns err if there are none.
func (c *Client) unconfirmedError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unconfirmed) == 0 {
		return err
	}
	var names []string
	for h := range c.unconfirmed {
		names = append(names, strconv.Quote(h.lock.name))
	}
	slices.Sort(names)
	more := ""
	if n := len(names) - manyNames; n > 0 {
		names, more = names[:manyNames], fmt.Sprintf(" and %d more", n)
	}
	text := "not confirmed to be free: " + strings.Join(names, ", ") + more
	if err == nil {
		return backend.Fail(ErrUnavailable, errors.New(text))
	}
	return backend.Fail(ErrUnavailable, fmt.Errorf("%s: %w", text, err))
}
