package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errStalled is why a hold is not renewed whose last renewals have not come back.
var errStalled = errors.New("too few nodes have answered the last renewal")

// A renewal is one hold in one call of Renew. Its hold's mutex guards it.
type renewal struct {
	h       *hold
	bh      *backend.Hold
	report  func(*backend.Hold, error)
	renewed int // nodes that have
	pending int // nodes that have not answered
	done    bool
	err     error // of a node that did not answer well
}

// A parcel is what goes to one node in one call of Renew: copies of the holds,
// because a node may still be at them when the next call comes.
type parcel struct {
	holds []*backend.Hold
	of    map[*backend.Hold]*renewal
	away  []*hold // that the node is to grant again
}

// Renew implements backend.Renewer. All holds of a node go there in one call. A
// hold is reported when enough nodes have renewed it, or cannot any more.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var open sync.WaitGroup
	open.Add(len(holds))
	all := make([]*renewal, len(holds))
	for i, bh := range holds {
		all[i] = &renewal{h: bh.State.(*hold), bh: bh, report: func(bh *backend.Hold, err error) {
			report(bh, err)
			open.Done()
		}}
	}
	parcels := make([]parcel, len(b.nodes))
	for i := range parcels {
		parcels[i] = b.pack(i, all)
	}
	for i := range parcels {
		b.send(ctx, i, &parcels[i])
	}
	for _, r := range all {
		r.answer(func() {})
	}
	open.Wait()
}

// pack collects what node i is to renew.
func (b *Backend) pack(i int, all []*renewal) parcel {
	p := parcel{of: make(map[*backend.Hold]*renewal, len(all))}
	for _, r := range all {
		r.h.mu.Lock()
		switch s := &r.h.seats[i]; {
		case s.hold == nil:
			if !r.h.r.Fixed && !b.all() {
				p.away = append(p.away, r.h)
			}
		case b.nodes[i].renewer == nil:
			if s.hold.Granted == 0 {
				r.renewed++ // it lasts by itself
			}
		case !s.renewing:
			c := *s.hold
			s.renewing = true
			r.pending++
			p.holds = append(p.holds, &c)
			p.of[&c] = r
		}
		r.h.mu.Unlock()
	}
	return p
}

// send has node i renew what p holds. A node that is slow has half of the time until
// the deadline of ctx, also when the others have decided: it can be asked again then.
func (b *Backend) send(ctx context.Context, i int, p *parcel) {
	if len(p.holds) > 0 {
		ok := b.janitor.Go(func(context.Context) {
			ctx, cancel := detach(ctx)
			defer cancel()
			b.nodes[i].renewer.Renew(ctx, p.holds, func(c *backend.Hold, err error) { p.of[c].take(i, c, err) })
		})
		for _, c := range p.holds {
			if !ok {
				p.of[c].take(i, c, backend.ErrClosed)
			}
		}
	}
	if len(p.away) > 0 {
		b.rejoinAll(i, p.away)
	}
}

// detach returns a context that ends halfway to the deadline of ctx and not before.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	at, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(at)/2)
}

// take is the answer of node i about its copy c.
func (r *renewal) take(i int, c *backend.Hold, err error) {
	r.answer(func() {
		r.pending--
		s := &r.h.seats[i]
		s.renewing = false
		switch {
		case s.hold == nil || s.hold.ID != c.ID: // it has lost it meanwhile, by another word
		case err == nil:
			s.hold.Sent, s.hold.Granted, s.hold.RenewIn = c.Sent, c.Granted, 0
			if s.bears {
				r.renewed++
			}
		case errors.Is(err, backend.ErrLost):
			s.vacate(failed, err)
		default:
			r.err = err
		}
	})
}

// answer takes an answer and reports what has become of the hold, once it is
// known.
func (r *renewal) answer(take func()) {
	r.h.mu.Lock()
	take()
	known, err := r.verdict()
	report := known && !r.done
	r.done = r.done || known
	if report && err == nil {
		l := r.h.lease()
		r.bh.Sent, r.bh.Granted = l.sent, l.granted
	}
	r.h.mu.Unlock()
	if report {
		r.report(r.bh, err)
	}
}

func (r *renewal) verdict() (known bool, err error) {
	switch need := r.h.b.need; {
	case r.h.bearing() < need: // also if a node that has renewed it has lost it since
		return true, backend.ErrLost
	case r.renewed >= need:
		return true, nil
	case r.renewed+r.pending >= need:
		return false, nil
	case r.err == nil:
		return true, backend.Fail(backend.ErrUnavailable, errStalled)
	}
	return true, backend.Fail(backend.ErrUnavailable, r.err)
}

// rejoinAll asks node i, which was away, for holds that the others have granted:
// a lock that lasts shall survive the next node that goes. One goroutine does it
// for all, and ends when the node is still away.
func (b *Backend) rejoinAll(i int, holds []*hold) {
	n := b.nodes[i]
	if !n.rejoining.CompareAndSwap(false, true) {
		return
	}
	b.janitor.Go(func(ctx context.Context) {
		defer n.rejoining.Store(false)
		for _, h := range holds {
			if ctx.Err() != nil || !h.rejoin(i) {
				return
			}
		}
	})
}

// rejoin asks node i once for a lock that is held. It reports false if the node
// does not answer.
func (h *hold) rejoin(i int) bool {
	h.mu.Lock()
	s := &h.seats[i]
	if s.asking || s.hold != nil || h.over {
		h.mu.Unlock()
		return true
	}
	q := h.query(i, false)
	h.mu.Unlock()
	h.send(q)
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.is == granted || s.is == refused
}
