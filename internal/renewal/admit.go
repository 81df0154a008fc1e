package renewal

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// ErrBehind is why a lock is refused that would cost others theirs.
var ErrBehind = errors.New("renewals are late: there are more locks than can be renewed")

const (
	// If less than slowBelow of a lease is left when it is renewed, new locks are slowed
	// down. If less than stopBelow is left, they wait.
	slowBelow, stopBelow = 1.0 / 2, 1.0 / 3

	// admitTimeout is how long a new lock waits before it is refused.
	admitTimeout = time.Second

	// pauseAfterOverload is for how long new locks wait after each sign of overload. They
	// are slowed down for as long as a lease, because what was added in the last period
	// is only then renewed for the first time.
	pauseAfterOverload = 100 * time.Millisecond

	// growthPart is the part of the holds there are that may be added in a period while
	// renewals have to wait for one another.
	growthPart = 1.0 / 64
)

// An overload says whether renewals are late, so that new locks have to wait. The zero
// value is none.
type overload struct {
	stopUntil moment // no new lock is admitted until then
	slowUntil moment // new locks are admitted at a limited rate until then
	nextSlot  moment // when the next one may be admitted at that rate
}

// Admit waits as long as renewals are late, and returns nil at once as long as they
// are not. It fails with ErrBehind if that takes long, or when ctx ends.
func (k *Keeper) Admit(ctx context.Context) error {
	giveUp := k.clock.now().at + moment(admitTimeout)
	for {
		now, at, isAdmitted := k.nextSlot(giveUp)
		if at <= now {
			return nil
		}
		if !isAdmitted {
			at = now + moment(backend.Jitter(time.Duration(at-now)))
		}
		if err := k.sleepUntil(ctx, at, giveUp); err != nil || isAdmitted {
			return err
		}
	}
}

// nextSlot returns when one more lock may be added, and reserves that time unless it is
// after giveUp. If no lock is admitted now, it returns when to ask again.
func (k *Keeper) nextSlot(giveUp moment) (now, at moment, isAdmitted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now = k.clock.now().at
	switch o := &k.overload; {
	case k.count < smallClient: // one more is no burden
		return now, now, true
	case o.stopUntil > now:
		return now, o.stopUntil, false
	case o.slowUntil > now:
		step := k.slotInterval()
		if at = max(o.nextSlot, now-burst*step); at <= giveUp {
			o.nextSlot = at + step
		}
		return now, at, true
	}
	return now, now, true
}

// sleepUntil waits until at. If giveUp is earlier, it waits until then and fails with
// ErrBehind.
func (k *Keeper) sleepUntil(ctx context.Context, at, giveUp moment) error {
	if !backend.Sleep(ctx, time.Duration(min(at, giveUp)-k.clock.now().at)) {
		return backend.WaitEnded(ctx, false)
	}
	if at > giveUp {
		return backend.Fail(backend.ErrUnavailable, ErrBehind)
	}
	return nil
}

// slotInterval is the time between two new locks while only a few may be added.
func (k *Keeper) slotInterval() moment {
	if k.renewalRate == 0 {
		return 0
	}
	// renewalRate is holds by period: so many are added in a period at that rate.
	return moment(1e18 / growthPart / float64(k.renewalRate))
}

// returnSlot allows one more new lock because one has gone.
func (k *Keeper) returnSlot() {
	if k.overload.slowUntil != 0 {
		k.overload.nextSlot -= k.slotInterval()
	}
}

// noteOverload stops or slows down new locks if too small a part of the leases of b was
// left when they were renewed. With few holds a late renewal has another reason than
// their number, and is ignored.
func (k *Keeper) noteOverload(b *batch, left float64, at moment) {
	if k.count < smallClient {
		return
	}
	if left < stopBelow {
		k.overload.stopUntil = at + moment(min(pauseAfterOverload, b.period()/2))
	}
	if left < slowBelow {
		k.overload.slowUntil = at + moment(b.lease)
	}
}

// AwaitCalm waits until renewals are not late, or until ctx is done. Work that is less
// urgent than renewals calls it first.
func (k *Keeper) AwaitCalm(ctx context.Context) {
	for {
		k.mu.Lock()
		wait := k.overload.stopUntil - k.clock.now().at
		k.mu.Unlock()
		if wait <= 0 || !backend.Sleep(ctx, time.Duration(wait)) {
			return
		}
	}
}

// watchQueue notes that renewals are due that cannot be sent yet.
func (k *Keeper) watchQueue(at moment) {
	if len(k.queue) == 0 || k.inFlight < k.maxInFlight() || k.count < smallClient {
		return
	}
	b := k.queue[0]
	k.noteOverload(b, b.leftPart(at, k.schedule.earlyEnd), at)
	if k.lateness(at) > moment(b.period()/8) {
		k.overload.slowUntil = at + moment(b.lease)
	}
}
