package keepalive

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// arm sets the timer for the item on top. It is called with k.mu held.
func (k *Keeper) arm(now time.Time) {
	if len(k.items) == 0 {
		return // a timer that fires for nothing is cheaper than stopping it each time
	}
	at := k.items[0].at
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

// tick looks at every item whose time has come.
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
		k.passes.Add(1)
		go k.renew(g)
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

// collect finds what is due: what is over, which it removes, and by TTL what is to
// be renewed, whose next date is its deadline. That has not come yet, so nothing
// is found twice.
func (k *Keeper) collect(now time.Time) (lost []verdict, groups map[time.Duration]*group) {
	at := k.clock.at(now)
	for it, ok := k.items.due(at); ok; it, ok = k.items.due(at) {
		if cause := k.over(it, now); cause != nil {
			k.items.remove(it)
			lost = append(lost, verdict{it.owner, cause})
			continue
		}
		if groups == nil {
			groups = make(map[time.Duration]*group)
		}
		g := groups[it.hold.TTL]
		if g == nil {
			g = &group{until: never}
			groups[it.hold.TTL] = g
		}
		g.add(it)
		k.items.move(it)
	}
	return lost, groups
}

func (g *group) add(it *Item) {
	it.inFlight = true
	g.holds, g.items = append(g.holds, it.hold), append(g.items, it)
	g.until = min(g.until, it.deadline.at())
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
	of := g.byHold()
	k.renewer.Renew(ctx, g.holds, func(h *backend.Hold, err error) { k.report(of[h], err) })
}

func (g *group) byHold() map[*backend.Hold]*Item {
	of := make(map[*backend.Hold]*Item, len(g.holds))
	for i, h := range g.holds {
		of[h] = g.items[i]
	}
	return of
}

// report takes the answer for one item.
func (k *Keeper) report(it *Item, err error) {
	k.mu.Lock()
	now := time.Now()
	it.inFlight = false
	if it.settled != nil {
		close(it.settled)
		it.settled = nil
	}
	if it.index == 0 { // removed meanwhile
		k.mu.Unlock()
		return
	}
	left := k.left(it, now)
	cause := k.answered(it, now, err)
	if cause == nil {
		k.items.move(it)
		k.arm(now)
	} else {
		k.items.remove(it)
	}
	k.mu.Unlock()

	switch {
	case cause != nil:
		it.owner.Lost(cause)
	case err == nil:
		it.owner.Renewed(left)
	}
}

// left is how much of the lease is left, zero if it has none.
func (k *Keeper) left(it *Item, now time.Time) time.Duration {
	if it.limit() == never {
		return 0
	}
	return max(k.clock.until(it.limit(), now), 0)
}

// answered plans the next renewal after an answer, or says why there is none.
// An answer that comes after the deadline does not revive the hold: its owner
// may have been told already.
func (k *Keeper) answered(it *Item, now time.Time, err error) error {
	if cause := k.over(it, now); cause != nil {
		return cause
	}
	h := it.hold
	switch {
	case err == nil:
		it.deadline.set(k.clock, h)
		it.due = k.clock.at(h.Sent) + moment(period(h))
		it.retry = nil
		return k.over(it, now)
	case errors.Is(err, backend.ErrLost):
		return err
	}
	if it.retry == nil {
		it.retry = &backend.Backoff{Min: max(h.TTL/50, time.Millisecond), Max: max(h.TTL/10, 2*time.Millisecond)}
	}
	it.due = k.clock.at(now) + moment(it.retry.Next())
	return nil
}
