package keepalive

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// Every pace the keeper sends renewals of slice holds, or of as many as come due
	// in that time. A request of another kind has to wait for one slice, and not for
	// all holds that were once taken together.
	pace  = moment(time.Millisecond)
	slice = 64

	// slowly is the pace of attempts while none is answered.
	slowly = 10 * pace

	// part is the part of all holds whose renewal may be under way at a time: as many
	// as a server that keeps up renews within an eighth of a period.
	part = 8
)

// errUnanswered is what becomes of a hold of which a renewer said nothing.
var errUnanswered = errors.New("nothing was reported")

// A call is the holds of one TTL that are renewed in one call.
type call struct {
	holds []*backend.Hold
	until moment // the earliest deadline among them

	// Guarded by the keeper's mutex.
	items []*Item // those of holds; nil: it was answered
	sent  moment
	stale moment // when it is no longer waited for, if nothing more urgent is due
	open  int    // how many are not answered
	ahead int    // how many were under way when it was sent, with its own
	past  bool   // it does not count as under way any more
	heard bool   // the server has answered for one of them
}

// enqueue puts a batch whose renewal is due into the queue, by its deadline. Once
// there it takes no others.
func (k *Keeper) enqueue(b *batch) {
	b.ready = true
	k.urgent = min(k.urgent, b.ttl)
	k.open.shut(b)
	i, _ := slices.BinarySearchFunc(k.queue, b, func(x, y *batch) int { return cmp.Compare(x.limit(), y.limit()) })
	k.queue = slices.Insert(k.queue, i, b)
	k.schedule.move(b)
}

// dequeue takes a batch out of the queue.
func (k *Keeper) dequeue(b *batch) {
	b.ready = false
	i := slices.Index(k.queue, b)
	k.queue = slices.Delete(k.queue, i, i+1)
	if len(k.queue) == 0 {
		k.urgent = math.MaxInt64
	}
}

// most is how many renewals may be under way at a time.
func (k *Keeper) most() int { return max(min(k.held/part, k.window), few) }

// gauge notes how many renewals the server answers within an eighth of a period, beside
// the time that the way to it takes: more of them would only wait there.
func (k *Keeper) gauge(c *call, took moment) {
	k.least = min(k.least, took)
	room := k.least + moment(c.holds[0].TTL/3/part)
	k.window = int(float64(c.ahead) * float64(room) / float64(max(took, 1)))
}

// sendAt is when send has something to do, unless an answer comes before.
func (k *Keeper) sendAt() moment {
	switch {
	case len(k.queue) == 0:
		return never
	case k.underWay >= k.most():
		return k.staleAt(k.calls[0])
	}
	return k.nextSend
}

// staleAt is when c is no longer waited for: so soon that what has a shorter TTL, and
// is due, is not late.
func (k *Keeper) staleAt(c *call) moment { return min(c.stale, c.sent+moment(k.urgent/6)) }

// send begins renewals that are due, earliest deadline first, as many as the pace
// and those under way allow.
func (k *Keeper) send(now instant) {
	k.pass(now.at)
	if now.at < k.sendAt() {
		k.watchQueue(now.at)
		return
	}
	calls := make(map[time.Duration]*call, 1)
	room := min(k.quota(now.at), k.most()-k.underWay)
	sent := 0
	first := k.hopeless(now.at)
	if first == len(k.queue) {
		first = 0 // there is nothing better to do
	}
	for sent < room && len(k.queue) > first {
		sent += k.fill(calls, k.queue[first], room-sent)
	}
	room = min(room, slice)
	for b, ok := k.schedule.soon(now.at); ok && sent < room; b, ok = k.schedule.soon(now.at) {
		k.enqueue(b)
		sent += k.fill(calls, b, room-sent)
	}
	for _, c := range calls {
		c.sent, c.open = now.at, len(c.items)
		c.stale = now.at + moment(c.holds[0].TTL/6)
		k.underWay += c.open
		c.ahead = k.underWay
		k.calls = append(k.calls, c)
		k.passes.Add(1)
		go k.renew(c)
	}
	k.lastSend, k.nextSend = now.at, now.at+pace
	if k.failing {
		k.nextSend = now.at + slowly
	}
}

// hopeless is how many of the queue will be over before they are answered. To renew
// these first would have those behind them be too late as well. What a server took that
// had too much to do is more than it takes when that is seen to.
func (k *Keeper) hopeless(at moment) (n int) {
	for _, b := range k.queue {
		if b.endAt(k.schedule.lead) >= at+min(k.took, k.least+moment(b.period()/3)) {
			break
		}
		n++
	}
	return n
}

// quota is how many renewals may begin now: somewhat more than come due in that
// time, so that holds that were once taken together are spread, and all if they
// are late.
func (k *Keeper) quota(at moment) int {
	since := min(at-k.lastSend, 20*pace) // a busy machine is late for each pace
	n := max(slice, int(float64(k.load)*float64(since)/1e18*5/4))
	head := k.queue[0]
	switch late := time.Duration(at - head.due); {
	case k.failing:
		return slice
	case late > head.period()/4:
		return 4 * n
	}
	return n
}

// fill has idle items of b renewed, no more than room, and returns how many.
func (k *Keeper) fill(calls map[time.Duration]*call, b *batch, room int) int {
	c := calls[b.ttl]
	if c == nil {
		c = &call{until: never}
		calls[b.ttl] = c
	}
	n := min(room, b.idle)
	c.holds, c.items = slices.Grow(c.holds, n), slices.Grow(c.items, n)
	for _, it := range b.items[b.idle-n : b.idle] {
		it.busy, it.Hold.Index = true, int32(len(c.holds))
		c.holds, c.items = append(c.holds, it.Hold), append(c.items, it)
	}
	b.idle -= n
	c.until = min(c.until, b.until)
	k.changed(b)
	return n
}

// renew asks the server once for all holds of c. An attempt may last half of what is
// left of the shortest lease, so that there is time for another, or longer if the server
// is only slow.
func (k *Keeper) renew(c *call) {
	defer k.passes.Done()
	ctx, cancel := k.ctx, context.CancelFunc(nil)
	if c.until == never {
		ctx, cancel = context.WithTimeout(ctx, c.holds[0].TTL/3)
	} else {
		left := time.Duration(c.until - k.clock.now().at)
		ctx, cancel = context.WithTimeout(ctx, max(left, time.Millisecond))
		var t *time.Timer
		t = time.AfterFunc(time.Hour, func() {
			if more := k.extend(c); more > time.Millisecond {
				t.Reset(more)
			} else {
				cancel()
			}
		})
		t.Reset(left / 2)
		defer t.Stop()
	}
	defer cancel()
	k.renewer.Renew(ctx, c.holds, func(h *backend.Hold, err error) { k.answer(c, h, err) })
	for _, h := range k.unanswered(c) {
		k.answer(c, h, errUnanswered) // which does nothing if it was
	}
}

// extend returns for how much longer an attempt may last. As long as the server answers
// what was sent before, and not what was sent well after it, to ask again would have it
// do the same work twice.
func (k *Keeper) extend(c *call) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.now().at
	recent := moment(c.holds[0].TTL / 6)
	if k.heardAt < now-recent || k.heard > c.sent+recent {
		return 0
	}
	return time.Duration(c.until-now) / 2
}

// unanswered returns the holds of c without an answer. The others may be released by
// now, and in another call.
func (k *Keeper) unanswered(c *call) (holds []*backend.Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, it := range c.items {
		if it != nil {
			holds = append(holds, it.Hold)
		}
	}
	return holds
}

// answer takes the answer for one hold of c. Only the first counts.
func (k *Keeper) answer(c *call, h *backend.Hold, err error) {
	k.mu.Lock()
	it := c.take(h)
	if it == nil {
		k.mu.Unlock()
		return
	}
	now := k.clock.now()
	k.count(c, now.at, err)
	it.settle()
	if it.place == 0 { // removed meanwhile
		k.arm(now)
		k.mu.Unlock()
		return
	}
	b := it.batch.Load()
	left, slack := b.left(now.at), b.slack(now.at, k.schedule.lead)
	cause := k.answered(it, now, err)
	if cause == nil && err == nil {
		k.strain(b, slack, now.at)
	}
	k.arm(now)
	k.mu.Unlock()

	switch {
	case cause != nil:
		k.end(Loss{it.owner, cause})
	case err == nil && it.tell.Swap(false) && it.owner.Renewed(left):
		it.Tell()
	}
}

// answered puts an item that was renewed into its next batch, plans another attempt
// for one that was not, or forgets it and says why it is over. An answer that comes
// after the deadline does not revive the hold: its owner may have been told already.
func (k *Keeper) answered(it *Item, now instant, err error) error {
	b := it.batch.Load()
	cause := b.over(now)
	if errors.Is(err, backend.ErrLost) {
		cause = cmp.Or(cause, err)
	}
	k.take(it)
	switch {
	case cause != nil:
		return cause
	case err != nil:
		k.retry(it, b, now.at)
		return nil
	}
	next := k.batchFor(it.Hold, b.ttl, b.end, now)
	if cause := next.over(now); cause != nil {
		return cause
	}
	k.put(it, &next, now)
	return nil
}

// retry has it renewed again with others whose renewal has failed too.
func (k *Keeper) retry(it *Item, b *batch, at moment) {
	n := b.failed
	if n == nil || n.index == 0 || n.ready || n.due <= at {
		n = b.again(at)
		k.schedule.add(n)
		b.failed = n
	}
	k.add(it, n)
}

// take returns the item of h, nil if it was answered before.
func (c *call) take(h *backend.Hold) *Item {
	i := int(h.Index)
	if i >= len(c.items) || c.items[i] == nil || c.items[i].Hold != h {
		return nil
	}
	it := c.items[i]
	c.items[i] = nil
	return it
}

// count notes that one hold of c was answered.
func (k *Keeper) count(c *call, at moment, err error) {
	c.open--
	if !c.past {
		k.underWay--
	}
	if err == nil || errors.Is(err, backend.ErrLost) {
		c.heard = true
		k.heard = max(k.heard, c.sent)
		k.took, k.heardAt = at-c.sent, at
		if c.open == 0 {
			k.gauge(c, k.took)
		}
		if k.failing {
			k.failing, k.nextSend = false, at
		}
	} else if c.open == 0 && !c.heard {
		k.failing = true
	}
	k.pass(at)
}

// pass does not count calls as under way any more to which the server has no answer
// though it has to later ones, or for long.
func (k *Keeper) pass(at moment) {
	for len(k.calls) > 0 {
		c := k.calls[0]
		if c.open > 0 && c.sent >= k.heard && k.staleAt(c) > at {
			return
		}
		c.past = true
		k.underWay -= c.open
		k.calls[0] = nil
		k.calls = k.calls[1:]
	}
}
