package keepalive

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// arm sets the timer for the lot on top. It is called with k.mu held.
func (k *Keeper) arm(now time.Time) {
	if len(k.lots) == 0 {
		return // a timer that fires for nothing is cheaper than stopping it each time
	}
	at := k.lots[0].at
	if at >= k.armed {
		return
	}
	k.armed = at
	wait := k.clock.until(at, now)
	if k.timer == nil {
		k.timer = time.AfterFunc(wait, k.tick)
		return
	}
	k.timer.Reset(wait)
}

// tick looks at every lot whose time has come.
func (k *Keeper) tick() {
	now := time.Now()
	k.mu.Lock()
	k.armed = never
	if k.ctx.Err() != nil {
		k.mu.Unlock()
		return
	}
	lost, groups := k.collect(now)
	for _, g := range groups {
		if len(g.holds) > 0 {
			k.passes.Add(1)
			go k.renew(g)
		}
	}
	k.arm(now)
	k.mu.Unlock()
	for _, l := range lost {
		l.owner.Lost(l.cause)
	}
}

// A verdict is a hold that is over, and why.
type verdict struct {
	owner Owner
	cause error
}

// A group is the holds of one TTL that are renewed in one call.
type group struct {
	holds []*backend.Hold
	items []*Item // theirs
	until moment  // the earliest deadline among them
}

// collect finds what is due: what is over, which it drops, and by TTL what is to
// be renewed. It is not due again before an answer has come.
func (k *Keeper) collect(now time.Time) (lost []verdict, groups map[time.Duration]*group) {
	at := k.clock.at(now)
	for l, ok := k.lots.due(at); ok; l, ok = k.lots.due(at) {
		if cause := l.over(at, now); cause != nil || len(l.items) == 0 {
			for _, it := range k.drop(l) {
				lost = append(lost, verdict{it.owner, cause})
			}
			continue
		}
		if groups == nil {
			groups = make(map[time.Duration]*group)
		}
		if groups[l.ttl] == nil {
			groups[l.ttl] = &group{until: never}
		}
		groups[l.ttl].add(l)
		k.open.shut(l)
		l.due = never
		k.lots.move(l)
	}
	return lost, groups
}

// add takes the holds of l that are not being renewed.
func (g *group) add(l *lot) {
	g.holds, g.items = slices.Grow(g.holds, len(l.items)), slices.Grow(g.items, len(l.items))
	for _, it := range l.items {
		if it.inFlight {
			continue
		}
		it.inFlight, it.Hold.Index = true, int32(len(g.holds))
		g.holds, g.items = append(g.holds, it.Hold), append(g.items, it)
	}
	g.until = min(g.until, l.deadline.running)
}

// renew asks the server once for all holds of g. An attempt may last half of
// what is left of the shortest lease, so that there is time for another.
func (k *Keeper) renew(g *group) {
	defer k.passes.Done()
	limit := g.holds[0].TTL / 3
	if g.until != never {
		limit = max(k.clock.until(g.until, time.Now())/2, time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	k.renewer.Renew(ctx, g.holds, func(h *backend.Hold, err error) { k.report(g.items[h.Index], err) })
}

// report takes the answer for one item.
func (k *Keeper) report(it *Item, err error) {
	k.mu.Lock()
	now := time.Now()
	it.settle()
	if it.place == 0 { // removed meanwhile
		k.mu.Unlock()
		return
	}
	left := it.lot.Load().left(k.clock.at(now))
	cause := k.answered(it, now, err)
	if cause == nil {
		k.arm(now)
	} else {
		k.take(it)
	}
	k.mu.Unlock()

	switch {
	case cause != nil:
		it.owner.Lost(cause)
	case err == nil && it.tell.Swap(false) && it.owner.Renewed(left):
		it.Tell()
	}
}

// answered puts an item that was renewed into its next lot, plans another attempt
// for one that was not, or says why it is over. An answer that comes after the
// deadline does not revive the hold: its owner may have been told already.
func (k *Keeper) answered(it *Item, now time.Time, err error) error {
	l, at := it.lot.Load(), k.clock.at(now)
	cause := l.over(at, now)
	switch {
	case cause != nil:
		return cause
	case errors.Is(err, backend.ErrLost):
		return err
	case err != nil:
		if l.due == never {
			l.later(at)
			k.lots.move(l)
		}
		return nil
	}
	next := k.lotFor(it.Hold, l.ttl, l.end)
	if cause := next.over(at, now); cause != nil {
		return cause
	}
	k.take(it)
	k.put(it, next)
	return nil
}
