package renewal

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// tolerancePart is the part of a TTL by which a hold may be given up or renewed before
// its time, to share that with others.
const tolerancePart = 64

// A batch is a set of holds with one TTL, one deadline and one time of renewal: the
// earliest of any of them. There may be 100,000 holds, far apart in memory, but only a
// few batches.
//
// A hold moves to another batch with every renewal, and with every attempt that fails.
type batch struct {
	plan

	// Guarded by the keeper's mutex.
	items     []*Item
	idle      int    // number of items that are not being renewed; they come first in items
	isQueued  bool   // due, and in the keeper's queue
	failed    *batch // where items go whose renewal fails
	shortened *batch // where items go that Shorten ends earlier
	index     int32  // position in the schedule, from 1; 0: none
}

// A plan is what the holds of a batch have in common.
type plan struct {
	ttl      time.Duration
	lease    time.Duration // what the server granted; more than ttl where the session is the lease
	deadline deadline
	span     time.Duration // from the last proof to the deadline
	end      moment        // end of the maximum hold of its only item; never: there is no maximum
	first    moment        // when the first attempt to renew is due; never: it is not renewed
	backoff  backend.Backoff

	// Guarded by the keeper's mutex. What is above does not change.
	due   moment // when the idle items are renewed
	until moment // the deadline, from both clocks
}

// fits reports whether a hold with plan n can be renewed together with batch b. The hold
// then ends and is renewed slightly too early, but not before half of the time until its
// own renewal.
func (b *batch) fits(n *plan, now instant) bool {
	tolerance := max(min(b.lease/tolerancePart, time.Duration(n.first-now.at)/2), 0)
	return b.end == never && n.end == never &&
		near(int64(b.first), int64(n.first), tolerance) && b.deadline.within(tolerance, n.deadline)
}

func (b *batch) add(it *Item) {
	it.batch.Store(b)
	b.items = append(b.items, it)
	it.place = int32(len(b.items))
	if !it.isRenewing {
		b.markIdle(it)
	}
}

func (b *batch) remove(it *Item) {
	if int(it.place) <= b.idle {
		b.markRenewing(it)
	}
	last := len(b.items) - 1
	b.swap(int(it.place)-1, last)
	b.items[last] = nil
	b.items = b.items[:last]
	it.place = 0
}

// markRenewing moves an idle item behind the idle ones.
func (b *batch) markRenewing(it *Item) {
	b.idle--
	b.swap(int(it.place)-1, b.idle)
}

// markIdle moves an item to the idle ones, in front.
func (b *batch) markIdle(it *Item) {
	b.swap(int(it.place)-1, b.idle)
	b.idle++
}

func (b *batch) swap(i, j int) {
	x, y := b.items[i], b.items[j]
	b.items[i], b.items[j] = y, x
	x.place, y.place = int32(j+1), int32(i+1)
}

// expired says why the holds are over by the clock, or nil. It needs no mutex.
func (p *plan) expired(now instant) error {
	switch {
	case p.deadline.passed(now):
		return ErrNoAnswer
	case now.at >= p.end:
		return ErrMaxHold
	}
	return nil
}

// limit is when the holds are over unless they are renewed.
func (b *batch) limit() moment { return min(b.until, b.end) }

// next is when the keeper must look at the batch again.
func (b *batch) next(early moment) moment {
	at := min(b.endAt(early), b.end)
	if b.idle > 0 && !b.isQueued {
		at = min(at, b.due)
	}
	return at
}

// endAt is when the keeper begins to end the holds: early, or less, before their deadline,
// so that all of them have ended by then.
func (b *batch) endAt(early moment) moment { return b.endBy(b.until, early) }

// endBy is endAt where the deadline is until.
func (b *batch) endBy(until, early moment) moment {
	if until == never {
		return never
	}
	return until - min(early, moment(b.span/earlyEndPart))
}

// leaseAt returns the lease of its holds as it is at that moment.
func (b *batch) leaseAt(at moment) Lease {
	if b.until == never {
		return Lease{}
	}
	return Lease{Granted: b.lease, Left: time.Duration(max(b.until-at, 0))}
}

// leftPart returns which part of the lease is left until the holds are ended: 1 when they
// were just proven.
func (b *batch) leftPart(at, early moment) float64 {
	if b.until == never {
		return 1
	}
	end := b.endAt(early)
	return float64(end-at) / float64(end-b.until+moment(b.span))
}

// period is the time from one renewal to the next.
func (p *plan) period() time.Duration { return max(p.lease/3, time.Microsecond) }

// retryBatch returns a batch for the holds that an attempt did not renew. Retries come
// closer together as the deadline approaches.
func (b *batch) retryBatch(at moment) *batch {
	n := &batch{plan: b.plan}
	n.backoff.Min, n.backoff.Max = max(b.lease/50, time.Millisecond), max(b.lease/10, 2*time.Millisecond)
	pause := n.backoff.Next()
	if b.limit() != never {
		pause = max(min(pause, time.Duration(b.limit()-at)/4), time.Millisecond)
	}
	n.due = at + moment(pause)
	return n
}

// maxFilling is for how many TTLs a batch waits empty for the next hold.
const maxFilling = 8

// addToBatch adds the item to a batch that n fits, or to a new one. An item with a maximum
// hold has a batch of its own.
func (k *Keeper) addToBatch(it *Item, n *plan, now instant) {
	b := k.filling[n.ttl]
	switch {
	case n.end != never:
		k.start(it, n)
	case b != nil && b.fits(n, now):
		k.add(it, b)
	default:
		k.filling[n.ttl] = k.start(it, n)
		if b != nil && len(b.items) == 0 {
			k.schedule.remove(b)
		}
	}
}

// stopFilling has b take no more holds.
func (k *Keeper) stopFilling(b *batch) {
	if k.filling[b.ttl] == b {
		delete(k.filling, b.ttl)
	}
}

// start adds a batch with its first item.
func (k *Keeper) start(it *Item, n *plan) *batch {
	b := &batch{plan: *n}
	k.schedule.add(b)
	k.add(it, b)
	return b
}

func (k *Keeper) add(it *Item, b *batch) {
	b.add(it)
	k.count++
	k.changes++
	k.renewalRate += b.rate()
	if b.idle == 1 {
		k.schedule.move(b)
	}
}

// removeFromBatch removes the item from its batch. An empty batch goes, unless the next hold
// of that TTL may join it.
func (k *Keeper) removeFromBatch(it *Item) {
	b := it.batch.Load()
	b.remove(it)
	k.count--
	k.renewalRate -= b.rate()
	k.changed(b)
}

// changed updates the queue and the schedule after items of b were removed or are
// being renewed.
func (k *Keeper) changed(b *batch) {
	if b.isQueued && b.idle == 0 {
		k.dequeue(b)
	}
	if len(b.items) == 0 && (k.filling[b.ttl] != b || len(k.filling) > maxFilling) {
		k.stopFilling(b)
		k.schedule.remove(b)
	} else if b.idle == 0 {
		k.schedule.move(b)
	}
}

// drop forgets b and returns the items that were in it.
func (k *Keeper) drop(b *batch) []*Item {
	items := b.items
	b.items, b.idle = nil, 0
	for _, it := range items {
		it.place = 0
	}
	k.count -= len(items)
	k.renewalRate -= b.rate() * int64(len(items))
	if b.isQueued {
		k.dequeue(b)
	}
	k.stopFilling(b)
	k.schedule.remove(b)
	return items
}

// rate is how often a hold of b is renewed, in a billion seconds.
func (b *batch) rate() int64 {
	if b.first == never {
		return 0
	}
	return int64(1e18) / int64(b.period())
}
