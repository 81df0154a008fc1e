package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/backend"
)

// Release implements backend.Backend. It is done when enough nodes have
// confirmed; the others are told in the background.
func (b *Backend) Release(ctx context.Context, bh *backend.Hold) error {
	h := bh.State.(*hold)
	h.close()
	return h.tell(ctx, func(ctx context.Context, i int, nh *backend.Hold) error {
		err := b.nodes[i].Release(ctx, nh)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.seats[i].released = true
		}
		return err
	})
}

// Reenter implements backend.Reenterer. Nodes that do not count entries have
// nothing to say.
func (b *Backend) Reenter(ctx context.Context, bh *backend.Hold, entries int, seq int64) error {
	return bh.State.(*hold).tell(ctx, func(ctx context.Context, i int, nh *backend.Hold) error {
		if r := b.nodes[i].reenterer; r != nil {
			return r.Reenter(ctx, nh, entries, seq)
		}
		return nil
	})
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
	return h.tell(ctx, func(ctx context.Context, i int, nh *backend.Hold) error {
		err := b.nodes[i].downgrader.Downgrade(ctx, nh)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			if s := h.seats[i].hold; s != nil {
				s.Mode = backend.Shared
			}
		}
		return err
	})
}

// tell has every node do something with its part of the hold, all at once, and
// returns when enough have, or too few can. What a node has not confirmed is
// repeated in the background while the lease lasts.
func (h *hold) tell(ctx context.Context, do func(ctx context.Context, i int, nh *backend.Hold) error) error {
	ok, results, pending := h.tellAll(ctx, do)
	var failed []error
	for ok < h.b.need && ok+pending >= h.b.need {
		select {
		case err := <-results:
			pending--
			switch {
			case err == nil:
				ok++
			case !errors.Is(err, backend.ErrLost):
				failed = append(failed, err)
			}
		case <-ctx.Done():
			return backend.WaitEnded(ctx, false)
		}
	}
	switch {
	case ok >= h.b.need:
		return nil
	case ok+pending+len(failed) < h.b.need:
		return backend.ErrLost
	}
	return backend.Fail(kindOf(failed[0]), errors.Join(failed...))
}

// tellAll begins what tell waits for. It returns how many nodes have done it
// before, and how many answers will come.
func (h *hold) tellAll(ctx context.Context, do func(context.Context, int, *backend.Hold) error) (done int, results chan error, pending int) {
	ctx = context.WithoutCancel(ctx)
	results = make(chan error, len(h.seats))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.seats {
		s := &h.seats[i]
		switch {
		case s.released:
			done++
		case s.hold != nil:
			c := *s.hold
			pending++
			if !h.b.workers.do(func() { h.tellNode(ctx, i, &c, results, do) }) {
				results <- backend.ErrClosed
			}
		}
	}
	return done, results, pending
}

func (h *hold) tellNode(ctx context.Context, i int, c *backend.Hold, results chan<- error, do func(context.Context, int, *backend.Hold) error) {
	err := do(ctx, i, c)
	if errors.Is(err, backend.ErrLost) {
		h.lose(i, c)
	}
	results <- err
	if settled(err) {
		return
	}
	h.b.janitor.Do(c.TTL, func(ctx context.Context) error {
		if err := do(ctx, i, c); !settled(err) {
			return err
		}
		return nil
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
