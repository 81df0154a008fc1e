package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// prompt is the most that a node takes to answer which the caller asks by itself:
// one after the other is waited for, and none shall hold up the others for long.
const prompt = time.Millisecond

// heard notes how a node has answered a request.
func (n *node) heard(nh *backend.Hold, err error) {
	n.silent.Store(err != nil && !errors.Is(err, backend.ErrHeld))
	n.near.Store(err == nil && time.Since(nh.Sent) < prompt)
}

// A started is what the caller itself has sent to one node.
type started[T any] struct {
	request backend.Started[T]
	next    func(T, error) // takes the answer
}

// wait takes the answers, one after the other. Another goroutine waits for one that
// does not come at once.
func wait[T any](ctx context.Context, w *workers, all []started[T]) {
	for _, s := range all {
		if answer, ok := s.request.Soon(); ok {
			s.next(answer, nil)
			continue
		}
		finish := func() { s.next(s.request.Finish(ctx)) }
		if !w.do(finish) {
			finish()
		}
	}
}

// start asks a node for the lock that is near. It reports false if it has not.
func (h *hold) start(i int) (s started[*backend.Hold], ok bool) {
	n := h.b.nodes[i]
	if n.starter == nil || !n.near.Load() {
		return s, false
	}
	try, r := h.nextTry(i, false)
	v, ok := n.starter.StartVote(r, h.ballot())
	if !ok {
		return s, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seats[i].asking, h.seats[i].is = true, asked
	return started[*backend.Hold]{v, func(nh *backend.Hold, err error) {
		h.pursue(i, h.hear(i, try, nh, err))
	}}, true
}

// startRelease begins to release what a node that is near has granted.
func (n *node) startRelease(nh *backend.Hold) (backend.Started[struct{}], bool) {
	if n.starter == nil || !n.near.Load() {
		return nil, false
	}
	return n.starter.StartRelease(nh)
}
