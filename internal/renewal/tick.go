package renewal

import (
	"slices"
	"time"
)

const (
	// compareEvery is how often the keeper compares the clocks while there are holds: a
	// machine that has slept ends what is over within that time.
	compareEvery = moment(time.Second)

	// clockJump is by how much one clock may run away from the other unnoticed.
	clockJump = 5 * time.Millisecond
)

// arm sets the timer for what is due next. The caller holds k.mu.
func (k *Keeper) arm(now instant) {
	if k.count == 0 && len(k.losses) == 0 {
		return // a timer that fires in vain is cheaper than stopping it every time
	}
	k.updateEarlyEnd()
	at := min(k.schedule.first(), k.sendAt(now.at), k.comparedAt+compareEvery)
	if len(k.losses) > 0 {
		at = min(at, k.reportAt)
	}
	if at >= k.armed {
		return
	}
	k.armed = at
	// At least a nanosecond: synctest runs a timer of the past within Reset, which has
	// crashed the runtime under the race detector (golang/go#76052 is about that path).
	wait := max(time.Duration(at-now.at), 1)
	if k.timer == nil {
		k.timer = time.AfterFunc(wait, k.tick)
		return
	}
	k.timer.Reset(wait)
}

// tick does everything that is due. It ends holds first, while nothing else of the
// keeper runs.
func (k *Keeper) tick() {
	k.mu.Lock()
	k.armed = never
	if k.ctx.Err() != nil {
		k.mu.Unlock()
		return
	}
	now := k.clock.now()
	k.compareClocks(now)
	over := k.collect(now)
	k.mu.Unlock()
	k.endHolds(over...)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	now = k.clock.now()
	k.send(now)
	k.arm(now)
}

// compareClocks moves every deadline and renewal forward if the wall clock has run
// ahead of the monotonic one, as it does while a machine sleeps.
func (k *Keeper) compareClocks(now instant) {
	k.comparedAt = now.at
	ahead := k.clock.ahead(now)
	gone := ahead - k.wallOffset
	if gone.Abs() < clockJump {
		return
	}
	k.wallOffset = ahead
	for _, d := range k.schedule.dates {
		b := d.batch
		b.until = b.deadline.until(now)
		if gone > 0 && b.due != never {
			b.due -= moment(gone)
		}
	}
	k.schedule.rebuild()
}

// collect removes what is due from the schedule: it returns the holds that are over,
// earliest deadline first, and queues those to renew.
func (k *Keeper) collect(now instant) (over []Loss) {
	for b, ok := k.schedule.due(now.at); ok; b, ok = k.schedule.due(now.at) {
		cause := b.expired(now)
		if cause == nil && now.at >= b.endAt(k.schedule.earlyEnd) {
			cause = ErrNoAnswer
		}
		if cause == nil && len(b.items) > 0 {
			k.enqueue(b)
			continue
		}
		for _, it := range k.drop(b) {
			over = append(over, Loss{it.owner, cause})
		}
	}
	return over
}

// endHolds ends holds, all of them before any loss is reported. The report waits for
// holds that end at almost the same moment.
func (k *Keeper) endHolds(over ...Loss) {
	over = slices.DeleteFunc(over, func(l Loss) bool { return !l.End(l.Cause) })
	k.mu.Lock()
	now := k.clock.now()
	if len(over) > 0 {
		if len(k.losses) == 0 {
			k.reportBy = now.at + compareEvery
		}
		k.losses = append(k.losses, over...)
		k.reportAt = now.at
		if n := k.count + len(k.losses); n > smallClient {
			k.reportAt = min(now.at+moment(n)*endCost/8, k.reportBy)
		}
	}
	var due []Loss
	if now.at >= k.reportAt || k.ctx.Err() != nil {
		due, k.losses = k.losses, nil
	}
	k.arm(now)
	k.mu.Unlock()
	if len(due) > 0 {
		k.report(due)
	}
}
