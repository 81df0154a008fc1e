package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A message is what every node is told of its part of a hold.
type message struct {
	do func(ctx context.Context, i int, nh *backend.Hold) error

	ends bool // a node that has done it has no part any more
}

// Release implements backend.Backend. It is done when enough nodes have
// confirmed; the others are told in the background.
func (b *Backend) Release(ctx context.Context, bh *backend.Hold) error {
	h := bh.State.(*hold)
	h.close()
	return h.tell(ctx, message{
		do:   func(ctx context.Context, i int, nh *backend.Hold) error { return b.nodes[i].Release(ctx, nh) },
		ends: true,
	})
}

// Reenter implements backend.Reenterer. Nodes that do not count entries have
// nothing to say.
func (b *Backend) Reenter(ctx context.Context, bh *backend.Hold, entries int, seq int64) error {
	return bh.State.(*hold).tell(ctx, message{do: func(ctx context.Context, i int, nh *backend.Hold) error {
		if r := b.nodes[i].reenterer; r != nil {
			return r.Reenter(ctx, nh, entries, seq)
		}
		return nil
	}})
}

// Downgrade implements backend.Downgrader. A majority must confirm it, and no
// node may be unable to do it: it would keep the readers out.
func (b *Backend) Downgrade(ctx context.Context, bh *backend.Hold) error {
	for i, n := range b.nodes {
		if n.downgrader == nil {
			return backend.Fail(backend.ErrUnsupported, fmt.Errorf("node %d, %T", i+1, n.Backend))
		}
	}
	h := bh.State.(*hold)
	h.mu.Lock()
	h.r.Mode = backend.Shared // for nodes that join from now on
	h.mu.Unlock()
	return h.tell(ctx, message{do: func(ctx context.Context, i int, nh *backend.Hold) error {
		err := b.nodes[i].downgrader.Downgrade(ctx, nh)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			if s := h.seats[i].hold; s != nil {
				s.Mode = backend.Shared
			}
		}
		return err
	}})
}

// A told is what has become of a message to one node.
type told struct {
	seat int
	err  error
}

// tell has every node do something with its part of the hold, all at once, and
// returns when enough have, or too few can. What a node has not confirmed is
// repeated in the background while the lease lasts.
func (h *hold) tell(ctx context.Context, m message) error {
	done, results, pending := h.tellAll(ctx, m)
	var failed []error
	var late <-chan time.Time
	front := m.ends // its word is missing
	free := h.free(m)
	for pending > 0 && done+pending+free >= h.b.need && (done < h.b.need || front) {
		if late == nil && done+free >= h.b.need {
			late = time.After(h.b.nodes[h.front].soon())
		}
		select {
		case r := <-results:
			pending--
			front = front && r.seat != h.front
			switch {
			case r.err == nil:
				done++
			case !errors.Is(r.err, backend.ErrLost):
				failed = append(failed, r.err)
			}
		case <-h.changed: // a request that was under way has ended
			free = h.free(m)
		case <-late:
			return nil
		case <-ctx.Done():
			if done >= h.b.need {
				return nil
			}
			return backend.WaitEnded(ctx, false)
		}
	}
	switch {
	case done+pending+len(failed) < h.b.need:
		return backend.ErrLost
	case done+free >= h.b.need:
		return nil
	}
	return backend.Fail(kindOf(failed[0]), errors.Join(failed...))
}

// tellAll begins what tell waits for. It returns how many nodes have done it
// before, and how many answers will come.
//
// The end of a hold is also waited for at its front, for a moment: whom the front
// refuses takes the lock to be held. It is done for others, too, if enough nodes
// either had no part of the hold or have confirmed it, and the rest do not answer.
func (h *hold) tellAll(ctx context.Context, m message) (done int, results chan told, pending int) {
	ctx = context.WithoutCancel(ctx)
	done, parts := h.parts()
	results = make(chan told, len(parts))
	for i, c := range parts {
		if c == nil {
			continue
		}
		pending++
		heard := func(err error) {
			h.noteTold(i, c, m, err)
			results <- told{i, err}
			if !settled(err) {
				h.tellAgain(i, c, m)
			}
		}
		if !h.b.workers.do(func() { heard(m.do(ctx, i, c)) }) {
			results <- told{i, backend.ErrClosed}
		}
	}
	return done, results, pending
}

// parts returns copies of what the nodes have granted, by seat, and how many have
// released it.
func (h *hold) parts() (released int, parts []*backend.Hold) {
	parts = make([]*backend.Hold, len(h.seats))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.seats {
		switch s := &h.seats[i]; {
		case s.released:
			released++
		case s.hold != nil:
			c := *s.hold
			parts[i] = &c
		}
	}
	return released, parts
}

// free is how many nodes have no part of a hold that ends, and have had none.
func (h *hold) free(m message) (n int) {
	if !m.ends {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.seats {
		if s := &h.seats[i]; s.hold == nil && !s.released && !s.asking && !errors.Is(s.err, backend.ErrLost) {
			n++
		}
	}
	return n
}

// noteTold notes the answer of a node.
func (h *hold) noteTold(i int, c *backend.Hold, m message, err error) {
	switch {
	case errors.Is(err, backend.ErrLost):
		h.lose(i, c)
	case err == nil && m.ends:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seats[i].released = true
	}
}

// tellAgain repeats in the background what a node has not confirmed.
func (h *hold) tellAgain(i int, c *backend.Hold, m message) {
	h.b.janitor.Do(c.TTL, func(ctx context.Context) error {
		err := m.do(ctx, i, c)
		h.noteTold(i, c, m, err)
		if settled(err) {
			return nil
		}
		return err
	})
}

// lose empties the seat of a node that has said that c is gone.
func (h *hold) lose(i int, c *backend.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := &h.seats[i]; s.hold != nil && s.hold.ID == c.ID {
		s.vacate(failed, backend.ErrLost)
	}
}
