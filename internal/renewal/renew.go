package renewal

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
	// The keeper sends renewals of burst holds, or of fewer if no more are due, and then
	// waits for pace or longer. A request of another kind has to wait for one burst, and not
	// for all holds that were once taken together.
	pace  = moment(time.Millisecond)
	burst = 64

	// maxInterval bounds the time from one burst to the next.
	maxInterval = 20 * pace

	// failingPace is the pace of attempts while none is answered.
	failingPace = 10 * pace

	// inFlightPart: at most the eighth part of all holds is being renewed at a time, which
	// is as many as a server that keeps up renews within an eighth of a period.
	inFlightPart = 8

	// latePart: renewals that are late by less than this part of a period are on time. The
	// holds of a batch become due as its first does, up to a tolerancePart of a lease early.
	latePart = 10
)

// errUnanswered is the outcome for a hold that the renewer did not report.
var errUnanswered = errors.New("nothing was reported")

// A call is the holds of one TTL that are renewed in one call.
type call struct {
	holds    []*backend.Hold // which the backend may change while the call is under way
	ttl      time.Duration   // that they have when it is sent
	deadline moment          // the earliest deadline among them
	shortest time.Duration   // the shortest lease among them, at most ttl

	// Guarded by the keeper's mutex.
	items        []*Item // the items of holds; nil once answered
	sent         moment
	unanswered   int  // number of holds without an answer
	inFlightThen int  // inFlight when it was sent, its own holds included
	isExpired    bool // it no longer counts as under way
	isAnswered   bool // the server has answered for at least one hold
}

// enqueue puts a batch whose renewal is due into the queue, by its deadline. Once
// there it takes no others.
func (k *Keeper) enqueue(b *batch) {
	b.isQueued = true
	k.shortestTTL = min(k.shortestTTL, b.ttl)
	k.stopFilling(b)
	i, _ := slices.BinarySearchFunc(k.queue, b, func(x, y *batch) int { return cmp.Compare(x.limit(), y.limit()) })
	k.queue = slices.Insert(k.queue, i, b)
	k.schedule.move(b)
}

// dequeue takes a batch out of the queue.
func (k *Keeper) dequeue(b *batch) {
	b.isQueued = false
	i := slices.Index(k.queue, b)
	k.queue = slices.Delete(k.queue, i, i+1)
	if len(k.queue) == 0 {
		k.shortestTTL = math.MaxInt64
	}
}

// maxInFlight is how many renewals may be under way at a time.
func (k *Keeper) maxInFlight() int { return max(min(k.count/inFlightPart, k.window), smallClient) }

// usualInFlight is how many renewals are under way at a time while they are not late: as
// many as come due in two round trips, and two bursts. Another request waits for no more
// than these, even if the timer was late. The later renewals are, the more there may be.
func (k *Keeper) usualInFlight(at moment) int {
	most := k.maxInFlight()
	if k.minLatency == never {
		return most
	}
	usual := 2*burst + int(2*float64(k.renewalRate)*float64(k.minLatency)/1e18)
	if usual >= most {
		return most
	}
	late := float64(k.lateness(at))*latePart/float64(k.queue[0].period()) - 1
	return usual + int(float64(most-usual)*min(max(late, 0), 1))
}

// lateness is how late the head of the queue is. One that has failed is as late as its first
// attempt is.
func (k *Keeper) lateness(at moment) moment {
	head := k.queue[0]
	return at - min(head.due, head.first)
}

// updateWindow sets how many renewals may be under way by how long the server took for
// c. It aims at the number that the server answers within an eighth of a period,
// beside the round trip: more of them would only wait there.
func (k *Keeper) updateWindow(c *call, took moment) {
	k.minLatency = min(k.minLatency, took)
	room := k.minLatency + moment(c.ttl/3/inFlightPart)
	k.window = int(float64(c.inFlightThen) * float64(room) / float64(max(took, 1)))
}

// sendAt is when send has something to do, unless an answer comes before.
func (k *Keeper) sendAt(at moment) moment {
	switch {
	case len(k.queue) == 0:
		return never
	case k.inFlight >= k.maxInFlight():
		return k.callExpiry(k.calls[0])
	case k.inFlight >= k.usualInFlight(at):
		return at + pace
	}
	return k.lastSend + k.interval(at)
}

// interval is the time from one burst to the next: as long as a burst takes to come due, so
// that renewals spread over the period, and less the later they are.
func (k *Keeper) interval(at moment) moment {
	if k.failing {
		return failingPace
	}
	tenth := float64(max(k.queue[0].period()/latePart, 1))
	usual := min(float64(burst)/k.sendRate(), float64(maxInterval), tenth)
	return max(moment(usual*(1-float64(k.lateness(at))/tenth)), pace)
}

// callExpiry is when c is no longer waited for. It comes early enough for a hold with
// a shorter TTL that is due.
func (k *Keeper) callExpiry(c *call) moment {
	return c.sent + moment(min(c.ttl, k.shortestTTL)/6)
}

// send begins renewals that are due, earliest deadline first, as many as the pace and
// maxInFlight allow.
func (k *Keeper) send(now instant) {
	k.expireCalls(now.at)
	if now.at < k.sendAt(now.at) {
		k.watchQueue(now.at)
		return
	}
	calls := make(map[time.Duration]*call, 1)
	quota := k.quota(now.at)
	room := min(quota, k.usualInFlight(now.at)-k.inFlight)
	sent := 0
	first := k.countTooLate(now.at)
	if first == len(k.queue) {
		first = 0 // nothing else is left to renew
	}
	for sent < room && len(k.queue) > first {
		sent += k.fill(calls, k.queue[first], room-sent)
	}
	room = min(room, burst)
	for b, ok := k.schedule.dueSoon(now.at); ok && sent < room; b, ok = k.schedule.dueSoon(now.at) {
		k.enqueue(b)
		sent += k.fill(calls, b, room-sent)
	}
	for _, c := range calls {
		k.startCall(c, now.at)
	}
	k.lastSend = now.at
	if rest := quota - sent; rest > burst && len(k.queue) > first {
		k.lastSend -= moment(float64(rest) / k.sendRate()) // the next answer makes room for them
	}
}

// startCall begins the renewals of c, of which fill has collected the holds.
func (k *Keeper) startCall(c *call, at moment) {
	c.sent, c.unanswered = at, len(c.items)
	k.inFlight += c.unanswered
	c.inFlightThen = k.inFlight
	k.calls = append(k.calls, c)
	k.attempts.Add(1)
	go k.renew(c)
}

// countTooLate is how many batches at the head of the queue will be over before the
// server answers. To renew them first would make those behind them late as well. An
// overloaded server gets faster when it is asked less, so the estimate does not exceed
// a third of a period.
func (k *Keeper) countTooLate(at moment) (n int) {
	for _, b := range k.queue {
		if b.endAt(k.schedule.earlyEnd) >= at+min(k.lastLatency, k.minLatency+moment(b.period()/3)) {
			break
		}
		n++
	}
	return n
}

// quota is how many renewals may begin now. It is slightly more than come due in that
// time, so that holds that were taken together spread out, and far more if they are
// late.
func (k *Keeper) quota(at moment) int {
	since := min(at-k.lastSend, maxInterval) // a busy machine runs the timer late
	n := max(burst, int(k.sendRate()*float64(since)))
	switch {
	case k.failing:
		return burst
	case time.Duration(k.lateness(at)) > k.queue[0].period()/4:
		return 4 * n
	}
	return n
}

// sendRate is how many renewals begin in a nanosecond.
func (k *Keeper) sendRate() float64 { return float64(k.renewalRate) / 1e18 * 5 / 4 }

// fill adds idle items of b, no more than room, to the call for their TTL, and returns
// how many.
func (k *Keeper) fill(calls map[time.Duration]*call, b *batch, room int) int {
	c := calls[b.ttl]
	if c == nil {
		c = &call{ttl: b.ttl, deadline: never, shortest: b.ttl}
		calls[b.ttl] = c
	}
	n := min(room, b.idle)
	c.holds, c.items = slices.Grow(c.holds, n), slices.Grow(c.items, n)
	for _, it := range b.items[b.idle-n : b.idle] {
		it.isRenewing, it.Hold.Index = true, int32(len(c.holds))
		c.holds, c.items = append(c.holds, it.Hold), append(c.items, it)
	}
	b.idle -= n
	c.deadline, c.shortest = min(c.deadline, b.until), min(c.shortest, b.lease)
	k.changed(b)
	return n
}

// renew asks the server once for all holds of c. An attempt may last half of what is
// left of the shortest lease, so that there is time for another, or longer if the server
// is only slow.
func (k *Keeper) renew(c *call) {
	defer k.attempts.Done()
	ctx, cancel := k.ctx, context.CancelFunc(nil)
	if c.deadline == never {
		ctx, cancel = context.WithTimeout(ctx, c.ttl/3)
	} else {
		left := time.Duration(c.deadline - k.clock.now().at)
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
		k.answer(c, h, errUnanswered) // no effect if it has been answered meanwhile
	}
}

// extend returns how much longer an attempt may take. While the server still answers
// earlier requests, and no later ones, asking again would only double its work. What a
// short lease, as that of a grant which has to be confirmed, takes for recent is short too.
func (k *Keeper) extend(c *call) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.now().at
	recent := moment(c.shortest / 6)
	if k.lastAnswer < now-recent || k.answeredSent > c.sent+recent {
		return 0
	}
	return time.Duration(c.deadline-now) / 2
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
	it := c.markAnswered(h)
	if it == nil {
		k.mu.Unlock()
		return
	}
	now := k.clock.now()
	k.noteAnswer(c, now.at, err)
	it.endRenewal()
	if it.place == 0 { // removed meanwhile
		k.arm(now)
		k.mu.Unlock()
		return
	}
	b := it.batch.Load()
	lease, left := b.leaseAt(now.at), b.leftPart(now.at, k.schedule.earlyEnd)
	cause := k.applyAnswer(it, now, err)
	if cause == nil && err == nil {
		k.noteOverload(b, left, now.at)
	}
	k.arm(now)
	k.mu.Unlock()

	switch {
	case cause != nil:
		k.endHolds(Loss{it.owner, cause})
	case err != nil && k.ctx.Err() == nil:
		it.owner.RenewalFailed(lease, err)
	case err == nil:
		it.owner.Renewed(lease)
	}
}

// applyAnswer moves a renewed item to its next batch and plans a retry for one that
// was not renewed. If the hold is over, it removes the item and returns the cause. An
// answer after the deadline does not revive a hold: its owner may have been told
// already.
func (k *Keeper) applyAnswer(it *Item, now instant, err error) error {
	b := it.batch.Load()
	cause := b.expired(now)
	if errors.Is(err, backend.ErrLost) {
		cause = cmp.Or(cause, err)
	}
	k.removeFromBatch(it)
	switch {
	case cause != nil:
		return cause
	case err != nil:
		k.retry(it, b, now.at)
		return nil
	}
	next := k.planFor(it.Hold, b.ttl, b.end, now)
	if cause := next.expired(now); cause != nil {
		return cause
	}
	k.addToBatch(it, &next, now)
	return nil
}

// retry schedules the item for another attempt, together with others that have failed.
func (k *Keeper) retry(it *Item, b *batch, at moment) {
	n := b.failed
	if n == nil || n.index == 0 || n.isQueued || n.due <= at {
		n = b.retryBatch(at)
		k.schedule.add(n)
		b.failed = n
	}
	k.add(it, n)
}

// markAnswered notes that there is an answer for h. It returns the item of h, nil if there
// was an answer before.
func (c *call) markAnswered(h *backend.Hold) *Item {
	i := int(h.Index)
	if i >= len(c.items) || c.items[i] == nil || c.items[i].Hold != h {
		return nil
	}
	it := c.items[i]
	c.items[i] = nil
	return it
}

// noteAnswer counts the answer for one hold of c.
func (k *Keeper) noteAnswer(c *call, at moment, err error) {
	c.unanswered--
	if !c.isExpired {
		k.inFlight--
	}
	if err == nil || errors.Is(err, backend.ErrLost) {
		c.isAnswered = true
		k.answeredSent = max(k.answeredSent, c.sent)
		k.lastLatency, k.lastAnswer = at-c.sent, at
		if c.unanswered == 0 {
			k.updateWindow(c, k.lastLatency)
		}
		k.failing = false
	} else if c.unanswered == 0 && !c.isAnswered {
		k.failing = true
	}
	k.expireCalls(at)
}

// expireCalls stops counting calls as under way if the server has answered later ones,
// or if they take too long.
func (k *Keeper) expireCalls(at moment) {
	for len(k.calls) > 0 {
		c := k.calls[0]
		if c.unanswered > 0 && c.sent >= k.answeredSent && k.callExpiry(c) > at {
			return
		}
		c.isExpired = true
		k.inFlight -= c.unanswered
		k.calls[0] = nil
		k.calls = k.calls[1:]
	}
}
