package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Release implements backend.Backend. A hold is released when enough nodes have confirmed
// it; the others go on in the background.
func (b *Backend) Release(ctx context.Context, bh *backend.Hold) error {
	h := bh.State.(*hold)
	h.end()
	h.checkUnsure()
	return h.broadcast(ctx, true, h.releasePart)
}

// checkUnsure asks the nodes whose answer to a request was lost whether they are back.
func (h *hold) checkUnsure() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.votes {
		h.checkVote(i)
	}
}

// checkVote asks node i whether it is back, if its answer to a request was lost. If it is, it has
// no part, or has none in a moment: whoever has sent a request that failed takes its effect back. One
// that denies the question may deny that as well, and one whose answer to another request is lost
// meanwhile may have died with that. Called with h.mu held.
func (h *hold) checkVote(i int) {
	v := &h.votes[i]
	if v.hold != nil || v.checked || !time.Now().Before(v.unsure) || h.b.nodes[i].pinger == nil {
		return
	}
	unsure := v.unsure
	v.checked = h.b.janitor.Go(func(ctx context.Context) {
		_, err := h.b.nodes[i].ping(ctx, h.request.TTL)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch v.checked = false; {
		case !v.unsure.Equal(unsure): // one more answer is lost
			h.checkVote(i)
		case err == nil:
			v.unsure = time.Time{}
		}
		h.notify()
	})
}

// releasePart has a node end its part of the hold.
func (h *hold) releasePart(ctx context.Context, i int, nh *backend.Hold) error {
	return h.b.nodes[i].Release(ctx, nh)
}

// ReleaseAll implements backend.BatchReleaser. All holds of a node go there in one call.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	all := make([]*confirmation, len(holds))
	parts := make([][]*part, len(b.nodes))
	for k, bh := range holds {
		h := bh.State.(*hold)
		h.end()
		h.checkUnsure()
		var of []part
		all[k], of = h.expect(true, h.releasePart)
		for i := range of {
			p := &of[i]
			parts[p.node] = append(parts[p.node], p)
		}
	}
	for i, n := range b.nodes {
		if !b.janitor.Go(func(lifetime context.Context) { n.releaseAll(backend.WithValues(lifetime, ctx), parts[i]) }) {
			for _, p := range parts[i] {
				p.receive(backend.ErrClosed)
			}
		}
	}
	var reports sync.WaitGroup
	for k, bh := range holds {
		reports.Go(func() { report(bh, all[k].await(ctx)) })
	}
	reports.Wait()
}

// releaseAll gives back what the node has granted, with one request if it can.
func (n *node) releaseAll(ctx context.Context, parts []*part) {
	batch, ok := n.Backend.(backend.BatchReleaser)
	if !ok {
		var all sync.WaitGroup
		for _, p := range parts {
			all.Go(func() { p.receive(n.Release(ctx, &p.hold)) })
		}
		all.Wait()
		return
	}
	holds := make([]*backend.Hold, len(parts))
	of := make(map[*backend.Hold]*part, len(parts))
	for k, p := range parts {
		holds[k], of[&p.hold] = &p.hold, p
	}
	batch.ReleaseAll(ctx, holds, func(nh *backend.Hold, err error) { of[nh].receive(err) })
}

// CanExpire reports whether every node is a backend.Expirer for d, and d no longer than any
// lease: a node that restarts waits for no more than that until it votes again.
func (b *Backend) CanExpire(d time.Duration) bool {
	if b.maxTTL > 0 && d > b.maxTTL {
		return false
	}
	return !slices.ContainsFunc(b.nodes, func(n *node) bool { return !backend.CanExpire(n.Backend, d) })
}

// Expire implements backend.Expirer. It is ErrUnsupported, and asks nobody, unless
// every node is a backend.Expirer.
func (b *Backend) Expire(ctx context.Context, bh *backend.Hold, d time.Duration) error {
	nodes, err := allAs[backend.Expirer](b)
	if err != nil {
		return err
	}
	h := bh.State.(*hold)
	h.end()
	end := time.Now().Add(d)
	c, parts := h.expect(false, func(ctx context.Context, i int, nh *backend.Hold) error {
		return nodes[i].Expire(ctx, nh, max(time.Until(end), time.Millisecond))
	})
	c.until = end
	return c.send(ctx, parts)
}

// end ends the requests under way. What they bring nevertheless is given back.
func (h *hold) end() {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.endEntry()
	for _, t := range []*time.Timer{h.lateTimer, h.joinTimer} {
		if t != nil {
			t.Stop()
		}
	}
}

// releaseVote releases what node i has granted, in the background. Called with h.mu
// held.
func (h *hold) releaseVote(i int, nh *backend.Hold) {
	h.releasing++
	v := &h.votes[i]
	v.returned++
	v.keeps = time.Now().Add(nh.TTL)
	confirmed := false
	ok := h.b.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, nh.TTL)
		defer cancel()
		waiting := true
		h.b.nodes[i].denied.Retry(ctx, func(ctx context.Context) error {
			err := h.releasePart(ctx, i, nh)
			h.mu.Lock()
			defer h.mu.Unlock()
			if waiting {
				waiting = false
				h.releasing--
			}
			if !confirmed && (err == nil || errors.Is(err, backend.ErrLost)) {
				confirmed = true
				v.returned--
			}
			h.notify()
			if isFinal(err) {
				return nil
			}
			return err
		})
	})
	if !ok {
		h.releasing--
	}
}

// uninvolved is how many nodes have no part of a hold that ends, and have lost none. One that has
// been told to take a part back is among them once it has that: such a node, and one that has
// not answered yet, are open. One whose answer was lost is among them once it cannot have a part
// any more.
func (h *hold) uninvolved() (none, open int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.votes {
		switch v := &h.votes[i]; {
		case v.hold != nil || v.released:
		case v.checked:
			open++
		case v.isAsking() || v.returned > 0 && time.Now().Before(v.keeps):
			if !h.b.nodes[i].silent.Load() {
				open++
			}
		case !errors.Is(v.err, backend.ErrLost) && time.Now().After(v.unsure):
			none++
		}
	}
	return none, open
}
