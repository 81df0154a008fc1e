package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// A hearing is what the hooks of a client are told of one call that asks for a lock.
type hearing struct {
	from     dlock.AcquiringEvent
	began    time.Time
	waits    int
	queued   bool // the end of it says so
	acquired *dlock.AcquiredEvent
	failed   *dlock.NotAcquiredEvent
}

func (h *hearing) hasEnded() bool { return h.acquired != nil || h.failed != nil }

// A heard is a lease that hooks were told of.
type heard struct {
	dlock.AcquiredEvent
	at    time.Time
	lease *dlock.Lease // once its call has returned
	limit time.Duration
	ends  int
}

// The keys of what contexts carry: the question of who calls, and what Acquiring has made of it.
type (
	askingKey  struct{}
	hearingKey struct{}
)

// An asking is a call as its caller sees it.
type asking struct {
	hearing *hearing
	limit   time.Duration // of the lease; 0: none
}

// acquiring notes that a call has begun, and returns the context that the rest of it uses.
func (l *listener) acquiring(ctx context.Context, e dlock.AcquiringEvent) context.Context {
	h := &hearing{from: e, began: time.Now()}
	l.mu.Lock()
	l.hearings = append(l.hearings, h)
	l.mu.Unlock()
	if a, _ := ctx.Value(askingKey{}).(*asking); a != nil {
		if a.hearing != nil {
			l.lies("Acquiring twice for one call: %+v", e)
		}
		a.hearing = h
	}
	if !slices.Contains([]string{"lock", "trylock", "rlock", "tryrlock"}, e.Op) || e.Name == "" || e.Shared != (e.Op == "rlock" || e.Op == "tryrlock") {
		l.lies("%+v", e)
	}
	return context.WithValue(ctx, hearingKey{}, h)
}

// hearingOf is the call that a hook is called for.
func (l *listener) hearingOf(ctx context.Context, what, op, name string, shared bool) *hearing {
	h, _ := ctx.Value(hearingKey{}).(*hearing)
	if h == nil {
		l.lies("%s of %s %q in another context than that of Acquiring", what, op, name)
		return &hearing{}
	}
	if f := h.from; f.Op != op || f.Name != name || f.Shared != shared {
		l.lies("%s of %s %q, shared %t, of a call that began as %+v", what, op, name, shared, f)
	}
	return h
}

func (l *listener) waiting(ctx context.Context, e dlock.WaitingEvent) {
	h := l.hearingOf(ctx, "Waiting", e.Op, e.Name, e.Shared)
	l.mu.Lock()
	h.waits++
	waits := h.waits
	l.mu.Unlock()
	if waits > 1 || strings.HasPrefix(e.Op, "try") || !names(e.Name, e.Lock) {
		l.lies("%d times Waiting, %+v", waits, e)
	}
}

// names reports whether a lock is one of those that are joined by spaces. A name may have spaces of its own.
func names(all, one string) bool { return strings.Contains(" "+all+" ", " "+one+" ") }

func (l *listener) hasAcquired(ctx context.Context, e dlock.AcquiredEvent) {
	h := l.hearingOf(ctx, "Acquired", e.Op, e.Name, e.Shared)
	l.ends(h, e.Waited, func() { h.acquired, h.queued = &e, e.Queued })
	l.mu.Lock()
	if l.leaseOf == nil {
		l.leaseOf, l.byLease, l.place = make(map[uint64]*heard), make(map[*dlock.Lease]*heard), e.Place
	}
	known, place := l.leaseOf[e.Lease] != nil, l.place
	this := &heard{AcquiredEvent: e, at: time.Now()}
	if a, _ := ctx.Value(askingKey{}).(*asking); a != nil {
		this.limit = a.limit
	}
	l.leaseOf[e.Lease] = this
	l.mu.Unlock()
	if l.reg != nil {
		go l.reg.judgesHandOver(l.index, e)
	}
	if known || e.Lease == 0 || e.Place == "" || e.Place != place {
		l.lies("number or place of a lease: %+v", e)
	}
	if e.FullName == "" && e.Token != 0 || e.FullName != "" && (e.Token == 0 || e.FullName != l.prefix+e.Name) {
		l.lies("token or full name of a lease: %+v", e)
	}
	if strings.HasPrefix(e.Op, "try") && (e.Queued || e.HandOver == dlock.LocalHandOver) || e.HandOver == dlock.RemoteHandOver && !e.Queued {
		l.lies("nobody has waited for a lease: %+v", e)
	}
}

func (l *listener) hasNotAcquired(ctx context.Context, e dlock.NotAcquiredEvent) {
	h := l.hearingOf(ctx, "NotAcquired", e.Op, e.Name, e.Shared)
	l.ends(h, e.Waited, func() { h.failed, h.queued = &e, e.Queued })
	var err *dlock.Error
	if !errors.As(e.Err, &err) || error(err) != e.Err || err.Op != e.Op || !names(e.Name, err.Name) {
		l.lies("the error of %+v", e)
	}
}

// ends notes that a call has ended, once, and how long it says that it took.
func (l *listener) ends(h *hearing, waited time.Duration, note func()) {
	l.mu.Lock()
	before := h.hasEnded()
	note()
	l.mu.Unlock()
	if took := time.Since(h.began); before || !near(waited, took) {
		l.lies("the end of %+v, the first %t, after %v and not %v", h.from, !before, waited, took)
	}
}

// near reports whether a time that is told is the one that has gone by.
func near(told, is time.Duration) bool { return (told - is).Abs() <= late }

// An end is what hooks are told of the end of a lease.
type end struct {
	what   string
	name   string
	shared bool
	lease  uint64
	token  uint64
	nested bool
	age    time.Duration
}

// hasEnded notes that a lease has ended, once.
func (l *listener) hasEnded(e end) *heard {
	l.mu.Lock()
	h := l.leaseOf[e.lease]
	if h == nil {
		l.mu.Unlock()
		l.lies("%+v of a lease that never began", e)
		return &heard{}
	}
	h.ends++
	ends := h.ends
	l.mu.Unlock()
	if ends > 1 || h.Name != e.name || h.Shared != e.shared || h.Token != e.token || h.Nested != e.nested || !near(e.age, time.Since(h.at)) {
		l.lies("the %d. end %+v, %v after %+v", ends, e, time.Since(h.at), h.AcquiredEvent)
	}
	return h
}

// A telling is a Locker that compares what its caller is told with what hooks are.
type telling struct {
	dlock.Locker
	*listener
	op *Op
}

func (t telling) Lock(ctx context.Context) (*dlock.Lease, error) {
	return t.acquire(ctx, t.Locker.Lock)
}
func (t telling) TryLock(ctx context.Context) (*dlock.Lease, error) {
	return t.acquire(ctx, t.Locker.TryLock)
}

func (t telling) acquire(ctx context.Context, lock func(context.Context) (*dlock.Lease, error)) (*dlock.Lease, error) {
	a, over := &asking{limit: t.op.MaxHold}, ctx.Err() != nil
	lease, err := lock(context.WithValue(ctx, askingKey{}, a))
	h := a.hearing
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case h == nil && t.op.ByName && errors.Is(err, dlock.ErrHeld):
	case h == nil:
		t.lied("no hook has heard of a call: %v", err)
	case err == nil && (h.acquired == nil || h.acquired.Token != lease.Token() || h.acquired.Name != lease.Name() || h.from.Shared && !lease.Shared() && lease.Err() == nil):
		t.lied("the lease %q with token %d, shared %t, and hooks were told of %+v", lease.Name(), lease.Token(), lease.Shared(), h.acquired)
	case err == nil:
		t.leaseOf[h.acquired.Lease].lease = lease
		t.newest = t.leaseOf[h.acquired.Lease]
		t.byLease[lease] = t.newest
	case h.failed == nil && !(t.op.ByName && errors.Is(err, dlock.ErrHeld)):
		t.lied("%+v failed with %v, and no hook was told", h.from, err)
	case h.failed != nil && (h.failed.Err != err || !isOutcome(ctx, over, h.failed)):
		t.lied("a call failed with %v, its context over %t and then %v, and hooks were told of %+v", err, over, ctx.Err(), h.failed)
	}
	return lease, err
}

// isOutcome reports whether a call that has failed, whose context was over before or has ended
// since, was told to have done so for a reason that can be.
func isOutcome(ctx context.Context, over bool, e *dlock.NotAcquiredEvent) bool {
	held := kindOf(e.Err) == dlock.ErrHeld // its owner may have given a context that cause
	switch e.Outcome {
	case dlock.OutcomeHeld:
		return held && !over
	case dlock.OutcomeCanceled: // nothing was asked, or its owner has ended it
		return kindOf(e.Err) == nil || ctx.Err() == context.Canceled
	case dlock.OutcomeFailed:
		return !held && (!over || kindOf(e.Err) != nil)
	}
	return false
}

// tells wraps a Locker of a client that has hooks.
func (a *actor) tells(l dlock.Locker, op *Op) dlock.Locker {
	if a.c.hooks.mode == "" {
		return l
	}
	return telling{l, a.c.hooks, op}
}

// lies notes that a hook was told what is not.
func (l *listener) lies(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lied(format, args...)
}

// lied is lies for whoever holds l.mu. The register is told apart: whoever looks at a lease with its
// mutex held may have a hook be called.
func (l *listener) lied(format string, args ...any) {
	if l.reg != nil {
		text := fmt.Sprintf(format, args...)
		go l.reg.isLied(l.index, text)
	}
}

// isLied notes that a hook of a client was told what is not. Where goroutines are stopped, a hook is called
// long after what it tells of, and what was meant to come first comes later.
func (r *register) isLied(client int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dead[client] && !r.stuttered(time.Time{}) {
		r.violate("hooks are told what is", "c%d: %s", client, text)
	}
}

// agrees checks, when all calls have ended, that those which were told to have waited were told of
// that, and no others.
func (l *listener) agrees() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hearings {
		if h.hasEnded() && h.queued != (h.waits > 0) && l.mode != "panic" {
			l.lied("%+v, whose end says queued %t, after %d calls of Waiting", h.from, h.queued, h.waits)
		}
	}
}
