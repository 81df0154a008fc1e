package simulation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/renewal"
)

// The keys of what contexts of Unlock and of Close carry, which their hooks are given.
type (
	unlockingKey struct{}
	closingKey   struct{}
)

// An unlocking is a call of Unlock as its caller sees it.
type unlocking struct {
	released []dlock.ReleasedEvent
	lease    *dlock.Lease // that it ends; nil: it has none yet
}

func (l *listener) released(ctx context.Context, e dlock.ReleasedEvent) {
	l.hasEnded(end{"Released", e.Name, e.Shared, e.Lease, e.Token, e.Nested, e.Age})
	if kind := kindOf(e.Err); kind == dlock.ErrLost || kind == dlock.ErrClosed || kind == dlock.ErrUnlocked {
		l.lies("Released says how another hook is to be told: %+v", e)
	}
	if u, _ := ctx.Value(unlockingKey{}).(*unlocking); u != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		u.released = append(u.released, e)
	}
}

func (l *listener) lost(e dlock.LostEvent) {
	h := l.hasEnded(end{"Lost", e.Name, e.Shared, e.Lease, e.Token, e.Nested, e.Age})
	var err *dlock.Error
	if !errors.As(e.Err, &err) || error(err) != e.Err || err.Kind != dlock.ErrLost || err.Name != e.Name || e.Cause != causeOf(e.Err) {
		l.lies("a loss that is told with another cause than its error has: %+v", e)
	}
	l.mu.Lock()
	lease, limit := h.lease, l.limitOf(h)
	l.mu.Unlock()
	if lease != nil {
		go l.isLost(lease, e)
	}
	if l.reg != nil {
		go l.reg.judgesLoss(l.index, e, limit)
	}
}

// limitOf is for how long a lease may last: on several locks no longer than one under which one of them was
// entered.
func (l *listener) limitOf(h *heard) time.Duration {
	limit := h.limit
	for _, outer := range l.leaseOf {
		isOn := func(name string) bool { return names(h.Name, name) }
		left := outer.at.Add(outer.limit).Sub(h.at)
		if outer.limit > 0 && outer.Name != h.Name && !outer.at.After(h.at) && left > 0 && slices.ContainsFunc(strings.Fields(outer.Name), isOn) {
			limit = min(limit, left)
		}
	}
	return limit
}

// isLost checks that a lease whose loss was told is over.
func (l *listener) isLost(lease *dlock.Lease, e dlock.LostEvent) {
	over := lease.Err()
	if kind := kindOf(over); kind != dlock.ErrLost && kind != dlock.ErrUnlocked && kind != dlock.ErrClosed {
		l.lies("%+v of a lease that is alive: %v", e, over)
	} else if kind == dlock.ErrLost && causeOf(over) != e.Cause {
		l.lies("%+v of a lease that says %v", e, over)
	}
	if lease.Context(context.Background()).Err() == nil {
		l.lies("%+v, and its context is alive", e)
	}
}

// causeOf is the cause of a loss that an error tells.
func causeOf(err error) dlock.LossCause {
	switch {
	case errors.Is(err, dlock.ErrBroken):
		return dlock.LossBroken
	case errors.Is(err, renewal.ErrMaxHold):
		return dlock.LossMaxHold
	case errors.Is(err, renewal.ErrNoAnswer):
		return dlock.LossExpired
	}
	return dlock.LossTaken
}

func (l *listener) hasClosed(ctx context.Context, e dlock.ClosedEvent) {
	h := l.hasEnded(end{"Closed", e.Name, e.Shared, e.Lease, e.Token, e.Nested, e.Age})
	if ctx.Value(closingKey{}) == nil && !(isClosed(l.closed) && (l.isUnderWay(ctx, h) || l.isUnlocked(ctx, h))) {
		l.lies("Closed in another context than that of Close, and of a call beside it: %+v", e)
	}
	if e.Err != nil && errors.Is(e.Err, dlock.ErrClosed) && !errors.Is(e.Err, dlock.ErrUnavailable) {
		l.lies("Closed with no more than that: %+v", e)
	}
}

// isUnderWay reports whether ctx is that of the call that has made a lease and has not returned it.
func (l *listener) isUnderWay(ctx context.Context, lease *heard) bool {
	h, _ := ctx.Value(hearingKey{}).(*hearing)
	l.mu.Lock()
	defer l.mu.Unlock()
	return h != nil && h.acquired != nil && h.acquired.Lease == lease.Lease && lease.lease == nil
}

// isUnlocked reports whether ctx is that of an Unlock of a lease.
func (l *listener) isUnlocked(ctx context.Context, lease *heard) bool {
	u, _ := ctx.Value(unlockingKey{}).(*unlocking)
	l.mu.Lock()
	defer l.mu.Unlock()
	return u != nil && u.lease != nil && u.lease == lease.lease
}

// unlocks returns a context for what ends with an Unlock of a lease, which that is told by is.
func (l *listener) unlocks(ctx context.Context) (_ context.Context, is func(*dlock.Lease)) {
	u := new(unlocking)
	return context.WithValue(ctx, unlockingKey{}, u), func(lease *dlock.Lease) {
		l.mu.Lock()
		defer l.mu.Unlock()
		u.lease = lease
	}
}

func (l *listener) renewalFailed(e dlock.RenewalFailedEvent) {
	l.mu.Lock()
	l.failures = append(l.failures, time.Now())
	l.mu.Unlock()
	if e.Err == nil || e.Left < 0 || e.Left > e.TTL || e.Name == "" || e.Token == 0 {
		l.lies("%+v", e)
	}
}

func (l *listener) hasRenewed(e dlock.RenewedEvent) {
	if e.Left < 0 || e.Left > e.TTL || e.Name == "" || e.Token == 0 {
		l.lies("%+v", e)
	}
}

// tellsEnd runs an Unlock, and compares what it returns with what hooks are told.
func (a *actor) tellsEnd(ctx context.Context, lease *dlock.Lease, unlock func(context.Context) error) error {
	l := a.c.hooks
	if l.mode == "" {
		return unlock(ctx)
	}
	u := &unlocking{lease: lease}
	err := unlock(context.WithValue(ctx, unlockingKey{}, u))
	kind := kindOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	others := kind == dlock.ErrLost || kind == dlock.ErrClosed || kind == dlock.ErrUnlocked
	if n := len(u.released); n != 1 && !others && l.mode != "panic" || n > 0 && others || n == 1 && u.released[0].Err != err {
		l.lied("Unlock returned %v, and hooks were told %+v", err, u.released)
	}
	return err
}

// judgesLoss checks that a lease was lost for the cause that hooks are told.
func (r *register) judgesLoss(client int, e dlock.LostEvent, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.dead[client], r.stuttered(time.Time{}): // a hook is called long after what it tells of
	case e.Cause == dlock.LossTaken:
		r.wasTaken(client, e)
	case e.Cause == dlock.LossBroken && !r.hasBroken(time.Now().Add(-e.Age-lingers)):
		r.violate("hooks are told what is", "c%d: %+v, and nobody has called Break", client, e)
	case e.Cause == dlock.LossMaxHold && !e.Nested && e.Age < limit-4*r.w.plan.slowest()-late:
		r.violate("hooks are told what is", "c%d: %+v, and its limit is %v", client, e, limit)
	}
}

// judgesHandOver checks, where the one server that there is knows, that a lease came from whom hooks
// are told: one that was passed on within the client has a token that no server has granted, and who
// waited in the server's queue was seen there.
func (r *register) judgesHandOver(client int, e dlock.AcquiredEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.HandOver == dlock.RemoteHandOver {
		r.brought[party{client, e.FullName}] = e.Token
	}
	switch {
	case e.FullName == "" || !r.seesHandOvers(client, e): // of several locks see handsOverAll
		return
	case e.Shared && r.w.plan.Backend != "quorum":
		r.joinsReaders(client, e)
		return
	case e.Shared:
		return
	case r.w.plan.Backend == "quorum":
		r.handsOverOnQuorum(client, e)
		return
	}
	log := r.lock(e.FullName)
	granted, queued := log.comesFrom(e.Token)
	if log.cameTwice(e.Token) {
		return
	}
	if granted == (e.HandOver == dlock.LocalHandOver) || granted && queued != (e.HandOver == dlock.RemoteHandOver) {
		r.violate("hooks are told what is", "c%d: %+v; granted by the server: %t, after it had queued there: %t", client, e, granted, queued)
	}
}

// isNested checks that hooks were told truly whether a lease was made under another on each of its locks.
func (a *actor) isNested(lease *dlock.Lease, all []*belief) {
	l := a.c.hooks
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.byLease[lease]
	if h == nil {
		return
	}
	nested := !slices.ContainsFunc(all, func(b *belief) bool { return b.parent == nil })
	if h.Nested != nested {
		l.lied("%+v, and nested is %t", h.AcquiredEvent, nested)
	}
}
