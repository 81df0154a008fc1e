package dlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/queue"
)

// A turn is what a goroutine waits for in a queue of its client: to ask the backend for
// lock, or a lease that another goroutine hands over.
type turn struct {
	lock  *lock  // nil: nothing can be handed over
	lease *Lease // that was handed over, or nil
}

type (
	turnQueue = queue.Queue[turn]
	waiter    = queue.Waiter[turn]
)

// A nameState is what a client knows of one name that is in use: the goroutines that
// wait for it, and its holds. The client's mutex guards it.
type nameState struct {
	queue           turnQueue
	holds           []*hold   // oldest first
	waitingOnServer int       // number of requests that wait on the server
	leftHeld        time.Time // when a request has left that waited on the server until its context ended; zero: there is newer word
}

// A wait is what a call knows from its wait in the queue of its client.
type wait struct {
	silence time.Duration // for how long it has waited without any answer
	isHeld  bool          // it has heard that the lock is held
}

// isHeld reports whether the lock is known to be held. A lost hold of this client does
// not count, nor does a request that has had no answer.
func (s *nameState) isHeld() bool { return s.waitingOnServer > 0 || s.isHeldHere() }

// isHeldHere reports whether this client has the lock, by a hold that is not lost.
func (s *nameState) isHeldHere() bool {
	return slices.ContainsFunc(s.holds, func(h *hold) bool { return !h.overBy(ErrLost) })
}

// enterOrQueue waits for this goroutine's turn to ask the backend for l. Until
// leaveName no other goroutine of this client asks for it in a conflicting mode. If a
// hold of this client will do, it returns a lease on that hold instead. A TryLock
// waits here only until the calls before it are answered.
func (c *Client) enterOrQueue(ctx context.Context, l *lock, r request) (state *nameState, lease *Lease, waited wait, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, nil, wait{}, ErrClosed
	}
	s := c.stateOf(l.fullName)
	if lease := s.joinReaders(l, r.mode); lease != nil {
		c.mu.Unlock()
		return s, lease, wait{}, nil
	}
	if s.queue.TryEnter(r.mode) {
		c.mu.Unlock()
		return s, nil, wait{}, nil
	}
	held := s.isHeld()
	if held && !r.wait {
		c.mu.Unlock()
		return nil, nil, wait{}, ErrHeld
	}
	lease, waited, err = c.queueUp(ctx, l, s, r, held)
	return s, lease, waited, err
}

// queueUp is enterOrQueue from the queue of s on. The caller holds c.mu; queueUp returns
// without it.
func (c *Client) queueUp(ctx context.Context, l *lock, s *nameState, r request, held bool) (lease *Lease, waited wait, err error) {
	w := queue.NewWaiter(turn{lock: l}, r.mode, !r.wait, held)
	if r.wait {
		for _, h := range s.holds {
			h.wantedLocally()
		}
	}
	entered := false
	defer func() {
		if !entered {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.forgetIdle(l, s)
		}
	}()
	err = l.awaitTurn(ctx, r, &s.queue, w, nil)
	if err == nil && w.Value.lease == nil && ctx.Err() != nil { // it has no time to ask, and may know
		err = backend.WaitEnded(ctx, w.Answered())
		c.mu.Lock()
		s.queue.Leave(r.mode)
		c.mu.Unlock()
	}
	entered = err == nil
	if waited.isHeld = w.Answered(); !waited.isHeld || err != nil {
		c.mu.Lock()
		waited.silence = s.queue.Silence(w)
		if r.wait && errors.Is(err, ErrHeld) && s.isHeldHere() {
			err = heldHere{err}
		}
		c.mu.Unlock()
	}
	if lease = w.Value.lease; lease != nil && r.call != nil {
		r.call.noteHandOver(LocalHandOver)
	}
	return lease, waited, err
}

// A heldHere is why a call has waited in vain for a lock that its own client has, perhaps itself.
type heldHere struct{ error }

func (h heldHere) Error() string {
	return h.error.Error() + " (a caller of this client has it: with a context made by Lease.Context it enters the lock again)"
}

func (h heldHere) Unwrap() error { return h.error }

// awaitTurn has w join q for the call r, tells the hooks, and waits; see queue.Waiter.Wait.
// The caller holds the client's mutex; awaitTurn returns without it.
func (l *lock) awaitTurn(ctx context.Context, r request, q *turnQueue, w *waiter, abort <-chan struct{}) error {
	q.Join(w)
	l.client.mu.Unlock()
	if r.call != nil && r.wait {
		l.callWaiting(ctx, r.call, q, w)
	}
	return w.Wait(ctx, q, &l.client.mu, abort)
}

// oneTrip is longer than a server that is well takes to answer.
const oneTrip = time.Second / 2

// leaveName ends the turn of a request for h that has failed with err, and returns why. Where ctx ends
// before there can be an answer, what the request before it knew counts, which has left a held lock.
func (c *Client) leaveName(ctx context.Context, h *hold, mode backend.Mode, waited wait, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := h.state
	switch {
	case ctx.Err() == nil:
		s.leftHeld = time.Time{}
	case h.isWaiting:
		s.leftHeld = time.Now()
	case waited.isHeld && backend.Since(s.leftHeld) < oneTrip && errors.Is(err, ErrUnavailable):
		err = backend.WaitEnded(ctx, true)
	}
	if requestCtx := h.requestCtx; requestCtx != nil && requestCtx.tries && errors.Is(err, ErrHeld) {
		s.queue.NoteRefused(mode, requestCtx.sent)
	}
	h.endRequest(errors.Is(err, ErrUnavailable))
	s.queue.Leave(mode)
	c.forgetIdle(h.lock, s)
	return err
}

// endRequest notes that the request for h is over. Failed says that no server has answered it, or too few have.
// The caller holds the client's mutex.
func (h *hold) endRequest(failed bool) {
	if h.requestCtx != nil && h.isWaiting {
		h.state.waitingOnServer--
	}
	if requestCtx := h.requestCtx; requestCtx != nil && requestCtx.waitsOn {
		h.state.queue.EndAnswered(requestCtx.tries, failed)
	}
	h.requestCtx, h.call = nil, nil
}

// stateOf returns the state of name, a new one if there is none. The caller holds
// c.mu.
func (c *Client) stateOf(name string) *nameState {
	s := c.names[name]
	if s == nil {
		s = new(nameState)
		c.names[name] = s
		c.mostNames = max(c.mostNames, len(c.names))
	}
	return s
}

// forgetIdle deletes s, the state of the name of l, if nobody needs it any more. A Go
// map never shrinks, so a new map replaces it after very many names. The caller holds
// c.mu.
func (c *Client) forgetIdle(l *lock, s *nameState) {
	if !s.queue.IsIdle() || len(s.holds) > 0 || c.names[l.fullName] != s {
		return
	}
	delete(c.names, l.fullName)
	if n := len(c.names); c.mostNames >= 1024 && n < c.mostNames/8 {
		c.names, c.mostNames = maps.Collect(maps.All(c.names)), n
	}
}

// addHold adds h to the holds of its name. It reports false if the client is closed.
func (c *Client) addHold(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.endRequest(false)
	if c.closed {
		return false
	}
	s := h.state
	s.holds, s.leftHeld = append(s.holds, h), time.Time{}
	s.queue.NoteHeld()
	if s.queue.Len() > 0 {
		h.wantedLocally()
	}
	return true
}

// removeHold removes h from the holds of its name and ends its turn, once.
func (c *Client) removeHold(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.removed.wasSent() {
		return
	}
	h.removed.send()
	s := h.state
	s.holds = slices.DeleteFunc(s.holds, func(o *hold) bool { return o == h })
	s.queue.Leave(h.item.Hold.Mode) // Mode changes only with the client's mutex held
	c.forgetIdle(h.lock, s)
}
