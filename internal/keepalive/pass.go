package keepalive

import (
	"container/heap"
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
	if !k.armed.IsZero() && !at.Before(k.armed) {
		return
	}
	k.armed = at
	if k.timer == nil {
		k.timer = time.AfterFunc(at.Sub(now), k.tick)
		return
	}
	k.timer.Reset(at.Sub(now))
}

// tick looks at every item whose time has come.
func (k *Keeper) tick() {
	now := time.Now()
	k.mu.Lock()
	k.armed = time.Time{}
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
	items map[*backend.Hold]*Item
	until time.Time // the earliest deadline among them
}

// collect takes from the heap what is due: what is over, and by TTL what is to
// be renewed. The latter goes back at once, with its deadline as next date.
func (k *Keeper) collect(now time.Time) (lost []verdict, groups map[time.Duration]*group) {
	var again []*Item
	for k.items.due(now) {
		it := heap.Pop(&k.items).(*Item)
		if cause := it.over(now); cause != nil {
			lost = append(lost, verdict{it.owner, cause})
			continue
		}
		again = append(again, it)
		if it.inFlight || it.due.IsZero() {
			continue
		}
		if groups == nil {
			groups = make(map[time.Duration]*group)
		}
		g := groups[it.hold.TTL]
		if g == nil {
			g = &group{items: make(map[*backend.Hold]*Item)}
			groups[it.hold.TTL] = g
		}
		g.add(it)
	}
	for _, it := range again {
		heap.Push(&k.items, it)
	}
	return lost, groups
}

func (g *group) add(it *Item) {
	it.inFlight = true
	g.items[it.hold] = it
	if at := it.deadline.at(); g.until.IsZero() || !at.IsZero() && at.Before(g.until) {
		g.until = at
	}
}

// renew asks the server once for all holds of g. An attempt may last half of
// what is left of the shortest lease, so that there is time for another.
func (k *Keeper) renew(g *group) {
	defer k.passes.Done()
	holds := make([]*backend.Hold, 0, len(g.items))
	for h := range g.items {
		holds = append(holds, h)
	}
	limit := holds[0].TTL / 3
	if !g.until.IsZero() {
		limit = max(time.Until(g.until)/2, time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	k.renewer.Renew(ctx, holds, func(h *backend.Hold, err error) { k.report(g.items[h], err) })
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
	heap.Remove(&k.items, it.index-1)
	at, limited := it.limit()
	left := max(at.Sub(now), 0)
	if !limited {
		left = 0
	}
	cause := it.answered(now, err)
	if cause == nil {
		heap.Push(&k.items, it)
		k.arm(now)
	}
	k.mu.Unlock()

	switch {
	case cause != nil:
		it.owner.Lost(cause)
	case err == nil:
		it.owner.Renewed(left)
	}
}

// answered plans the next renewal after an answer, or says why there is none.
// An answer that comes after the deadline does not revive the hold: its owner
// may have been told already.
func (it *Item) answered(now time.Time, err error) error {
	if cause := it.over(now); cause != nil {
		return cause
	}
	switch {
	case err == nil:
		it.proven()
		it.retry.Reset()
		it.due = it.hold.Sent.Add(period(it.hold))
		return it.over(now)
	case errors.Is(err, backend.ErrLost):
		return err
	}
	it.due = now.Add(it.retry.Next())
	return nil
}
