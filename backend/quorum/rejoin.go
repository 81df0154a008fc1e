package quorum

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// rejoins are holds that others have granted, for which a node is to be asked.
type rejoins struct {
	mu    sync.Mutex
	holds map[*hold]struct{} // renewals bring some again
	runs  bool               // a goroutine asks
}

// add adds holds. It reports whether the caller has to see to them.
func (r *rejoins) add(holds []*hold) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds == nil {
		r.holds = make(map[*hold]struct{})
	}
	for _, h := range holds {
		r.holds[h] = struct{}{}
	}
	first := !r.runs
	r.runs = true
	return first
}

// take returns what has come. If that is nothing, whoever adds next sees to it.
func (r *rejoins) take() (holds []*hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds = slices.Collect(maps.Keys(r.holds))
	r.holds, r.runs = nil, len(holds) > 0
	return holds
}

// drop forgets what has come: the node is away.
func (r *rejoins) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds, r.runs = nil, false
}

// rejoinAll asks node i, which was away, for holds that the others have granted:
// a lock that lasts shall survive the next node that goes. One goroutine sees to
// all that renewals bring meanwhile, and ends when the node is still away. Nobody
// else may have seen that it is back. What the node has denied before comes after the
// others, and until it denies something again: it may deny some names alone.
func (b *Backend) rejoinAll(i int, holds []*hold) {
	r := &b.nodes[i].rejoins
	if len(holds) == 0 || !r.add(holds) {
		return
	}
	started := b.janitor.Go(func(ctx context.Context) {
		for holds := r.take(); len(holds) > 0; holds = r.take() {
			deniedBefore, others := splitDenied(i, holds)
			if !b.rejoinNow(ctx, i, others) {
				r.drop()
				return
			}
			b.rejoinNow(ctx, i, deniedBefore)
		}
	})
	if !started {
		r.drop()
	}
}

// rejoiners is how many holds a node is asked for at a time: of one after the other a thousand take minutes
// at a distance, in which the next node may go.
const rejoiners = 64

// rejoinNow asks node i for holds: for the first of them alone. It reports false if the node does not answer, or
// denies what it has denied before.
func (b *Backend) rejoinNow(ctx context.Context, i int, holds []*hold) bool {
	if len(holds) == 0 {
		return true
	}
	n := b.nodes[i]
	if b.isSpared(n) && !n.isBack(ctx, holds[0].request.TTL) || !holds[0].rejoin(i) {
		return false
	}
	var away atomic.Bool
	backend.ForEachPart(holds[1:], 1, rejoiners, func(part []*hold) {
		if ctx.Err() == nil && !away.Load() && !part[0].rejoin(i) {
			away.Store(true)
		}
	})
	return ctx.Err() == nil && !away.Load()
}

// splitDenied divides holds into those that node i has denied when it was last asked, and others.
func splitDenied(i int, holds []*hold) (denied, others []*hold) {
	for _, h := range holds {
		if h.isDenied(i) {
			denied = append(denied, h)
		} else {
			others = append(others, h)
		}
	}
	return denied, others
}

func (h *hold) isDenied(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.votes[i].state == denied
}

// rejoin asks node i once for a lock that is held. It reports false if the node does not answer, or denies it again.
func (h *hold) rejoin(i int) bool {
	h.mu.Lock()
	v := &h.votes[i]
	if v.isAsking() || v.hold != nil || h.over || h.lost || errors.Is(v.err, backend.ErrBroken) {
		h.mu.Unlock()
		return true
	}
	before := v.state
	q := h.newQuery(i, false)
	h.mu.Unlock()
	q.send()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch v.state {
	case granted, refused, unasked: // it has been given back
		return true
	case denied:
		return before != denied
	}
	return false
}
