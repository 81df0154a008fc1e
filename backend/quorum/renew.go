package quorum

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A renewal is one hold in one call of Renew. Its hold's mutex guards it.
type renewal struct {
	h       *hold
	bh      *backend.Hold
	report  func(*backend.Hold, error)
	renewed int // nodes that have
	pending int // nodes that have not answered
	done    bool
	err     error // of a node that did not answer well
	lost    error // of a node that has lost it
}

// A renewBatch is what goes to one node in one call of Renew: copies of the holds,
// because a node may still be at them when the next call comes.
type renewBatch struct {
	holds   []*backend.Hold
	of      map[*backend.Hold]*renewal
	missing []*hold    // that the node is to grant again
	taken   []*renewal // of missing holds that the node has granted and lost
}

// Renew implements backend.Renewer. All holds of a node go there in one call. A
// hold is reported when enough nodes have renewed it, or cannot any more.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var unreported sync.WaitGroup
	unreported.Add(len(holds))
	all := make([]*renewal, len(holds))
	for i, bh := range holds {
		all[i] = &renewal{h: bh.State.(*hold), bh: bh, report: func(bh *backend.Hold, err error) {
			report(bh, err)
			unreported.Done()
		}}
	}
	batches := make([]renewBatch, len(b.nodes))
	for i := range batches {
		batches[i] = b.collectBatch(i, all)
	}
	for i := range batches {
		b.sendBatch(ctx, i, &batches[i])
	}
	for _, r := range all {
		r.answer(func() {})
	}
	unreported.Wait()
	for i := range batches {
		b.rejoinAll(i, batches[i].confirmed())
	}
}

// collectBatch collects what node i is to renew.
func (b *Backend) collectBatch(i int, all []*renewal) renewBatch {
	p := renewBatch{of: make(map[*backend.Hold]*renewal, len(all))}
	for _, r := range all {
		r.h.mu.Lock()
		switch v := &r.h.votes[i]; {
		case v.hold == nil && (r.h.request.Fixed || b.needsAll() || errors.Is(v.err, backend.ErrBroken)):
		case v.hold == nil && errors.Is(v.err, backend.ErrLost):
			p.taken = append(p.taken, r)
		case v.hold == nil:
			p.missing = append(p.missing, r.h)
		case b.nodes[i].renewer == nil:
			if v.hold.Granted == 0 {
				r.renewed++ // it lasts by itself
			}
		case !v.renewing:
			c := *v.hold
			v.renewing = true
			r.pending++
			p.holds = append(p.holds, &c)
			p.of[&c] = r
		}
		r.h.mu.Unlock()
	}
	return p
}

// sendBatch has node i renew what p holds. A node that is slow has half of the time until
// the deadline of ctx, also when the others have decided: it can be asked again then.
func (b *Backend) sendBatch(ctx context.Context, i int, p *renewBatch) {
	if len(p.holds) > 0 {
		ok := b.janitor.Go(func(lifetime context.Context) {
			ctx, cancel := untilHalfway(lifetime, ctx)
			defer cancel()
			b.nodes[i].renewer.Renew(ctx, p.holds, func(c *backend.Hold, err error) { p.of[c].receive(i, c, err) })
		})
		for _, c := range p.holds {
			if !ok {
				p.of[c].receive(i, c, backend.ErrClosed)
			}
		}
	}
	b.rejoinAll(i, p.missing)
}

// confirmed returns the holds that the node has lost and enough others have renewed since.
// Before that they may all have lost it: a hold that took each vote anew before it missed
// the next one would never be lost.
func (p *renewBatch) confirmed() (holds []*hold) {
	for _, r := range p.taken {
		r.h.mu.Lock()
		if r.renewed >= r.h.b.need {
			holds = append(holds, r.h)
		}
		r.h.mu.Unlock()
	}
	return holds
}

// untilHalfway returns a context that ends halfway to the deadline of ctx, or with lifetime,
// and not before.
func untilHalfway(lifetime, ctx context.Context) (context.Context, context.CancelFunc) {
	at, ok := ctx.Deadline()
	ctx = backend.WithValues(lifetime, ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(at)/2)
}

// receive takes the answer of node i about its copy c.
func (r *renewal) receive(i int, c *backend.Hold, err error) {
	r.answer(func() {
		r.pending--
		v := &r.h.votes[i]
		switch {
		case !r.h.takeRenewal(i, c, err): // it has lost it meanwhile, by another word
		case err == nil:
			if v.counts {
				r.renewed++
			}
		case errors.Is(err, backend.ErrLost):
			r.lost = err
		default:
			r.err = err
		}
	})
}

// takeRenewal notes what node i says about its copy c. It reports false if the hold has no
// such part any more. Called with h.mu held.
func (h *hold) takeRenewal(i int, c *backend.Hold, err error) bool {
	v := &h.votes[i]
	if v.hold == nil || v.hold.ID != c.ID {
		return false
	}
	v.renewing = false
	switch {
	case err == nil:
		v.hold.Sent, v.hold.Granted, v.hold.RenewIn = c.Sent, c.Granted, 0
	case errors.Is(err, backend.ErrLost):
		h.clearVote(i, failed, err)
	}
	return true
}

// renewLater has node i renew what it has granted after the lock was held, when that has to
// be: out of its queue it grants for less than the TTL. It is asked for as long as the part lasts.
// Called with h.mu held.
func (h *hold) renewLater(i int, nh *backend.Hold) {
	if h.b.nodes[i].renewer == nil {
		return
	}
	ends := nh.Sent.Add(nh.Granted)
	time.AfterFunc(time.Until(nh.Sent.Add(nh.RenewIn)), func() {
		h.b.janitor.Do(time.Until(ends), func(ctx context.Context) error { return h.renewPart(ctx, i, nh) })
	})
}

// renewPart renews nh at node i alone, unless it has been renewed or has ended.
func (h *hold) renewPart(ctx context.Context, i int, nh *backend.Hold) error {
	h.mu.Lock()
	v := &h.votes[i]
	if h.over || v.hold != nh || nh.RenewIn == 0 || v.renewing {
		h.mu.Unlock()
		return nil
	}
	v.renewing = true
	c := *nh
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerLimit(nh.TTL))
	defer cancel()
	var failed error
	h.b.nodes[i].renewer.Renew(ctx, []*backend.Hold{&c}, func(c *backend.Hold, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.takeRenewal(i, c, err)
		failed = err
	})
	return failed
}

// answer takes an answer and reports what has become of the hold, once it is
// known.
func (r *renewal) answer(record func()) {
	r.h.mu.Lock()
	record()
	known, err := r.verdict()
	report := known && !r.done
	r.done = r.done || known
	if report && err == nil {
		last := r.h.lease()
		r.bh.Sent, r.bh.Granted = last.Sent, last.Granted
		r.h.believed = deadline(last)
	}
	r.h.mu.Unlock()
	if !report {
		return
	}
	r.report(r.bh, err)
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if err == nil && !r.h.lost { // a part that was lost meanwhile counts beside what was reported
		r.h.shorten()
	}
}

func (r *renewal) verdict() (known bool, err error) {
	switch need := r.h.b.need; {
	case r.h.lost: // also if a node that has renewed it has lost it since
		return true, cmp.Or(r.lost, backend.ErrLost)
	case r.renewed >= need:
		return true, nil
	case r.renewed+r.pending >= need:
		return false, nil
	case r.err == nil:
		return true, backend.Fail(backend.ErrUnavailable, errNotRenewed)
	}
	return true, backend.Fail(backend.ErrUnavailable, r.err)
}
