package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A lock is what a Mutex or a Multi stands for: a name on a client, with its settings.
type lock struct {
	*settings
	client   *Client
	name     string  // of a Multi all names, joined by a space
	fullName string  // with the client's prefix; empty for a Multi
	parts    []*lock // of a Multi, in the order of their names; nil: one lock
	err      error   // what is wrong with names or settings
}

// A request is one call on a lock.
type request struct {
	op   string
	mode backend.Mode
	wait bool
	part bool  // for one lock of a Multi: the Multi applies WithMaxHold, and waits for undo
	call *call // what the hooks are told; nil: nothing
}

func (c *Client) newLock(name string, s *settings) *lock {
	if c == nil || c.backend == nil {
		return &lock{name: name, err: backend.Fail(ErrInvalidConfig, errZeroClient)}
	}
	l := &lock{settings: s, client: c, name: name, fullName: c.opts.Prefix + name}
	l.err = backend.Join(checkName(name, l.fullName), s.err)
	if l.err == nil && c.opts.InspectOnly {
		l.err = errInspectOnly
	}
	return l
}

// settings returns the settings of a lock with the options o.
func (c *Client) settings(o []Option) *settings {
	if c == nil || c.backend == nil {
		return nil
	}
	if len(o) == 0 {
		return &c.defaults
	}
	return newSettings(&c.opts, c.minTTL, o)
}

func checkName(name, fullName string) error {
	switch {
	case name == "":
		return backend.Fail(ErrInvalidName, errors.New("empty"))
	case len(fullName) > backend.MaxName:
		return backend.Fail(ErrInvalidName, fmt.Errorf("%d bytes with the prefix, more than %d", len(fullName), backend.MaxName))
	}
	return nil
}

// acquire enters the lock, or all those of a Multi, for r, and tells the hooks.
func (l *lock) acquire(ctx context.Context, r request) (*Lease, error) {
	if l.client != nil && l.client.tellsOfCalls {
		return l.tellCall(ctx, r)
	}
	return l.enter(ctx, r)
}

func (l *lock) enter(ctx context.Context, r request) (*Lease, error) {
	switch {
	case l.err != nil:
		return nil, newError(r.op, l.name, l.err)
	case ctx == nil:
		return nil, newError(r.op, l.name, errNilContext)
	case ctx.Err() != nil:
		return nil, ctxError(r.op, l.name, ctx)
	}
	if r.wait && l.maxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = backend.Bound(ctx, l.maxWait)
		defer cancel()
	}
	if l.parts != nil {
		return l.enterAll(ctx, r)
	}
	return l.enterOne(ctx, r)
}

// enterOne enters one lock for r. If ctx was made from a live lease on it, that is a
// re-entry.
func (l *lock) enterOne(ctx context.Context, r request) (*Lease, error) {
	outer := chainOf(ctx).find(l.client, l.fullName)
	if ctx.Err() != nil { // perhaps that of a lease that was lost, which find has ended
		return nil, ctxError(r.op, l.name, ctx)
	}
	var lease *Lease
	var err error
	if outer == nil {
		lease, err = l.acquireNew(ctx, r)
	} else {
		lease, err = l.reenter(ctx, outer.of.(*entry), r)
	}
	if err != nil {
		return nil, newError(r.op, l.name, err)
	}
	if r.call != nil {
		r.call.nested = r.call.nested && outer != nil
	}
	return lease, nil
}

// acquireNew waits for this goroutine's turn in the client's queue, asks the backend
// for the lock, and starts the hold. A goroutine that waits here may get a lease on a
// hold of this client instead.
func (l *lock) acquireNew(ctx context.Context, r request) (*Lease, error) {
	c := l.client
	state, lease, waited, err := c.enterOrQueue(ctx, l, r)
	if lease != nil || err != nil {
		return lease, err
	}
	h := &hold{lock: l, state: state}
	if r.wait {
		h.call = r.call // a try waits for no lock, also where one of several servers has said that it is held
	}
	if err = c.keeper.Admit(ctx); err == nil {
		err = h.request(ctx, r, backend.FirstAnswer-waited.silence)
	}
	if err != nil {
		err = c.leaveName(ctx, h, r.mode, waited, err)
	} else if lease, err = h.start(l.maxHoldFor(r)); err != nil {
		h.rejectGrant()
	}
	if r.call == nil {
		return lease, err
	}
	if h.isWaiting && r.wait {
		r.call.noteHandOver(RemoteHandOver)
	}
	if p := r.call.panic.Load(); p != nil {
		if err == nil {
			c.undo(ctx, r, nil, lease.discard)
		}
		p.goOn()
	}
	return lease, err
}

// maxHoldFor returns how long a hold that r acquires may last, 0 for no limit. A Multi
// limits the holds of its locks only when it has all of them.
func (l *lock) maxHoldFor(r request) time.Duration {
	if r.part {
		return 0
	}
	return l.maxHold
}

// request asks the backend for h. The first answer must come within limit. Without any time left it asks nobody.
func (h *hold) request(ctx context.Context, r request, limit time.Duration) (err error) {
	if limit <= 0 { // its turn has come as its time has ended
		return backend.Fail(backend.ErrUnavailable, backend.NoAnswer(backend.FirstAnswer))
	}
	l, c := h.lock, h.lock.client
	ttl, fixed := l.requestTTL(l.maxHoldFor(r))
	requestCtx := limitAnswer(ctx, limit, backend.FirstAnswer)
	requestCtx.tries = !r.wait
	defer requestCtx.stop()
	h.requestCtx = requestCtx
	h.item.Hold, err = c.backend.Acquire(requestCtx, backend.Request{
		Name:     l.fullName,
		ID:       backend.ID{Client: c.id, Seq: c.lastID.Add(1)},
		Label:    l.label,
		Mode:     r.mode,
		TTL:      ttl,
		Fixed:    fixed,
		Wait:     r.wait,
		Observer: h,
	})
	return err
}

// Queued implements backend.Observer: the server says that the lock is held.
func (h *hold) Queued() {
	request, call := h.noteQueued()
	if call != nil {
		call.queuedOnServer(h.lock.name, request)
	}
}

// noteQueued notes that the request waits on the server. It returns the request, and its
// call if hooks are to be told.
func (h *hold) noteQueued() (*requestContext, *call) {
	c := h.lock.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.requestCtx == nil || h.isWaiting {
		return nil, nil
	}
	h.isWaiting = true
	h.requestCtx.clearLimit()
	h.state.waitingOnServer++
	h.state.queue.NoteHeld()
	return h.requestCtx, h.call
}

// Answered ends the limit on the first answer; see backend.Request.Answered.
func (h *hold) Answered() {
	c := h.lock.client
	c.mu.Lock()
	defer c.mu.Unlock()
	requestCtx := h.requestCtx
	if requestCtx == nil {
		return
	}
	requestCtx.clearLimit()
	if !requestCtx.waitsOn {
		requestCtx.waitsOn = true
		h.state.queue.NoteAnswered(requestCtx.tries)
	}
}

// undo calls f to give back what the call r has acquired before it failed because of why.
// It waits for f until ctx is done and undoTimeout longer, or only undoTimeout if the
// server has not answered. f then goes on alone. After Close there is nothing to give back.
func (c *Client) undo(ctx context.Context, r request, why error, f func(context.Context)) {
	done := make(chan struct{})
	if !c.janitor.Go(func(ctx context.Context) { defer close(done); f(ctx) }) || r.part {
		return
	}
	if kindOf(why, nil) == ErrUnavailable {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended
	}
	awaitOrLeave(ctx, done)
}

// undoTimeout is how much longer than its limit a failing call may take to give back
// what it has acquired. Whoever asks next should not find the lock held.
const undoTimeout = 50 * time.Millisecond

// awaitOrLeave waits for done until ctx is done and undoTimeout longer. It reports false if
// that was not enough.
func awaitOrLeave(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	t := time.NewTimer(undoTimeout)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
