package keepalive

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// closeness is the part of a TTL by which a hold may be given up or renewed before
// its time, to share that with others.
const closeness = 64

// A lot is holds of one TTL that are believed in until one moment and renewed at
// one moment: the earliest of any of them. Holds are many and lie far apart in
// memory. Lots are few, and what is to be noted of each hold is noted once.
//
// A hold changes its lot with every renewal.
type lot struct {
	ttl      time.Duration
	deadline deadline
	end      moment // of the longest time for its one hold; never: there is no such time
	first    moment // when renewal was due at first; never: there is none

	// Guarded by the keeper's mutex. What is above does not change.
	due   moment // when renewal is due; never: it is under way for all
	retry *backend.Backoff
	items []*Item
	index int32 // in the schedule, from 1; 0: not there
}

// takes reports whether a hold that would have a lot such as n may share l.
func (l *lot) takes(n *lot) bool {
	slack := l.ttl / closeness
	return l.end == never && n.end == never && l.due == l.first &&
		near(int64(l.first), int64(n.first), slack) && l.deadline.within(slack, n.deadline)
}

func (l *lot) add(it *Item) {
	it.lot.Store(l)
	l.items = append(l.items, it)
	it.place = int32(len(l.items))
}

func (l *lot) remove(it *Item) {
	last := len(l.items) - 1
	moved := l.items[last]
	l.items[it.place-1], moved.place = moved, it.place
	l.items[last] = nil
	l.items = l.items[:last]
	it.place = 0
}

// over says why the holds of l are over at now, or nil. It needs no mutex.
func (l *lot) over(at moment, now time.Time) error {
	switch {
	case l.deadline.passed(at, now):
		return errNoAnswer
	case at >= l.end:
		return errMaxHold
	}
	return nil
}

// limit is when the holds are over unless they are renewed.
func (l *lot) limit() moment { return min(l.deadline.running, l.end) }

// next is when the keeper must look at the lot again.
func (l *lot) next() moment { return min(l.due, l.limit()) }

// left is how much of the lease is left, zero if it has none.
func (l *lot) left(at moment) time.Duration {
	if l.limit() == never {
		return 0
	}
	return time.Duration(max(l.limit()-at, 0))
}

// later plans another attempt for holds that an attempt did not renew.
func (l *lot) later(at moment) {
	if l.retry == nil {
		l.retry = &backend.Backoff{Min: max(l.ttl/50, time.Millisecond), Max: max(l.ttl/10, 2*time.Millisecond)}
	}
	l.due = at + moment(l.retry.Next())
}

// The open lots are those that take others: one for each of the TTLs that were
// used last.
type openLots struct {
	lots [8]*lot
	next int // to be replaced
}

// of returns the place of the lot for ttl, or the one that it may have.
func (o *openLots) of(ttl time.Duration) int {
	for i, l := range o.lots {
		if l != nil && l.ttl == ttl {
			return i
		}
	}
	o.next = (o.next + 1) % len(o.lots)
	return o.next
}

func (o *openLots) has(l *lot) bool {
	for _, other := range o.lots {
		if other == l {
			return true
		}
	}
	return false
}

func (o *openLots) shut(l *lot) {
	for i, other := range o.lots {
		if other == l {
			o.lots[i] = nil
		}
	}
}

// put adds the item to a lot such as n, to an open one if it can.
func (k *Keeper) put(it *Item, n lot) {
	if n.end != never {
		k.start(it, n)
		return
	}
	i := k.open.of(n.ttl)
	l := k.open.lots[i]
	if l != nil && l.ttl == n.ttl && l.takes(&n) {
		l.add(it)
		return
	}
	k.open.lots[i] = k.start(it, n)
	if l != nil && len(l.items) == 0 {
		k.lots.remove(l)
	}
}

// start makes a lot such as n with its first item.
func (k *Keeper) start(it *Item, n lot) *lot {
	l := &lot{ttl: n.ttl, deadline: n.deadline, end: n.end, first: n.first, due: n.first}
	l.add(it)
	k.lots.add(l)
	return l
}

// take takes the item out of its lot. An empty one is kept only as long as others
// may come.
func (k *Keeper) take(it *Item) {
	l := it.lot.Load()
	l.remove(it)
	if len(l.items) == 0 && !k.open.has(l) {
		k.lots.remove(l)
	}
}

// drop forgets l and returns the items that were in it.
func (k *Keeper) drop(l *lot) []*Item {
	items := l.items
	l.items = nil
	for _, it := range items {
		it.place = 0
	}
	k.open.shut(l)
	k.lots.remove(l)
	return items
}
