package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
)

// leads has goroutines of a part of the plans lead: they do in each of their terms what another op would
// have done, and fail in the end, or when they are told to stop, in one of several ways.
func (g *generator) leads() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 65))}
	p := g.plan
	if !g.often(25) {
		return
	}
	for i := range p.Clients {
		for j := range p.Clients[i].Workers {
			if !g.often(50) {
				continue
			}
			ops := p.Clients[i].Workers[j]
			for k := range ops {
				if op := &ops[k]; op.Call == "lock" && !op.ByName && g.often(20) {
					g.lead(op)
				}
			}
		}
	}
}

func (g *generator) lead(op *Op) {
	op.Call, op.Forget, op.NoReentry = "lead", false, false
	op.Wait = g.within(g.plan.TTL, 4*g.plan.TTL)
	if g.often(40) {
		op.Hold = pick(g.draw, 0, 10*time.Millisecond, g.within(0, time.Second)) // terms are short
	}
	op.Ends = pick(g.draw, "", "", "cause", "part", "other", "joined")
	if g.often(20) {
		op.Terms = 1 + g.IntN(5)
	}
}

// errFailed is the error of a function that leads, errStop why it has to stop, and errPart a part of that.
var (
	errFailed = errors.New("the term has failed")
	errPart   = errors.New("part of why")
	errStop   = fmt.Errorf("told to stop: %w", errPart)
)

// pausing is how long Lead pauses the first time at least, and twice as long each time after, until
// mostPausing. No documentation says such numbers: they are half of what it pauses.
const (
	pausing     = 2500 * time.Microsecond
	mostPausing = 250 * time.Millisecond
)

// A leader is one call of Lead. It is its Locker, and so hears of each of its calls.
type leader struct {
	*actor
	dlock.Locker
	op  *Op
	o   *owner    // of the call
	end time.Time // when ctx ends at the latest
	ctx context.Context

	call    *call        // that has got a lease, or is under way
	leaving *call        // the Unlock of a term
	lease   *dlock.Lease // of that
	all     []*belief
	idle    time.Time // when a term, or a call, ended that Lead has to pause after; zero: it need not
	pauses  int       // how many there have been in a row
	terms   int
	err     error              // of the last term
	lost    bool               // that was
	doubted bool               // its Unlock may have found out that it was
	back    time.Time          // when the function returned last
	threw   bool               // it has panicked, or ended its goroutine
	unlocks func(*dlock.Lease) // notes which lease the next Unlock ends
}

func (a *actor) lead(wait context.Context, o *owner, op *Op, names []string) {
	ctx, cancel := context.WithCancelCause(wait)
	defer cancel(nil)
	ctx, unlocks := a.c.hooks.unlocks(ctx)
	l := &leader{actor: a, op: op, o: o, ctx: ctx, unlocks: unlocks, Locker: a.locker(op, a.locals(names)), end: time.Now().Add(op.Wait)}
	if op.Cancel { // it is told why
		l.end = time.Now().Add(op.Wait / 2)
		t := time.AfterFunc(op.Wait/2, func() { cancel(errStop) })
		defer t.Stop()
	}
	if over := a.w.reg.began.Add(a.w.plan.Length); over.Before(l.end) {
		l.end = later(over, time.Now()) // one that begins after the end ends at once
	}
	end := op.endingOf(a.c.hooks, func() error { return dlock.Lead(op.foreign(ctx), l, l.serve) })
	l.left()
	l.throws(end)
	if end.thrown == nil && !end.exited {
		l.judge(end.err)
	}
}

// TryLock is not for Lead.
func (l *leader) TryLock(context.Context) (*dlock.Lease, error) { panic("Lead tries") }

// Lock is how Lead stands for a term.
func (l *leader) Lock(ctx context.Context) (*dlock.Lease, error) {
	l.left()
	l.paused()
	names := l.named(l.op)
	c := &call{client: l.c.index, what: "lock", names: names, ctx: ctx, nested: l.o != nil, within: l.o, waits: true}
	connects := l.w.plan.taking()
	c.hurried = l.op.MaxWait > 0 || l.op.MaxHold > 0 && l.op.MaxHold < connects
	c.brief = l.w.reg.isShort(l.w.plan.leaseOf(l.op))
	l.bound(c, &Op{Call: "lock", Names: l.op.Names, MaxWait: l.op.MaxWait})
	if end := l.end.Add(l.undoing()); end.Before(c.bound) && l.w.plan.Clients[l.c.index].Hooks != "panic" {
		c.bound = end
	}
	l.w.reg.begin(c)
	began := time.Now()
	var lease *dlock.Lease
	err := l.c.hooks.survive(func() (err error) {
		lease, err = l.Locker.Lock(withCall(ctx, c))
		return err
	})
	switch {
	case err == nil:
		l.call = c
		return lease, nil
	case errors.Is(err, dlock.ErrHeld) && time.Since(began) >= time.Second: // it was a long wait
		l.idle, l.pauses = time.Time{}, 0
	default:
		l.idle = time.Now()
	}
	l.w.reg.returned(c, err)
	if err == errPanicked {
		panic(err)
	}
	return nil, err
}

// paused checks that Lead has paused where it has to, longer each time: after a server that has not
// answered, and after a short term.
func (l *leader) paused() {
	if l.idle.IsZero() {
		return
	}
	least := min(pausing<<min(l.pauses, 10), mostPausing)
	if took := time.Since(l.idle); took < least && l.ctx.Err() == nil {
		l.violate("Lead pauses", "c%d %v: after %v, which is less than %v", l.c.index, l.named(l.op), took, least)
	}
	l.pauses++
}

// serve is the function that Lead runs in a term.
func (l *leader) serve(ctx context.Context, lease *dlock.Lease) error {
	c := l.call
	l.terms++
	if l.err != nil && !l.mayBeLost() {
		l.violate("Lead ends", "c%d %v: another term after one that has failed: %v", l.c.index, c.names, l.err)
	}
	l.err, l.lost, l.doubted, l.lease = nil, false, false, lease
	l.unlocks(lease)
	began := time.Now()
	if l.all = l.w.reg.grant(c, l.o, lease, ctx, l.op, false); l.all == nil {
		return errFailed // it is dead
	}
	l.w.reg.spies(lease, l.all)
	l.use(ctx, lease, &owner{l.all, l.o}, l.op, func() {
		if l.ctx.Err() != nil && ctx.Err() == nil {
			l.violate("contexts end", "c%d leads %v: its context is done, and that of the term is not", l.c.index, c.names)
		}
		l.lost = errors.Is(lease.Err(), dlock.ErrLost)
		l.w.reg.gives(l.all)
		l.leaving = &call{client: l.c.index, what: "unlock", names: c.names, ctx: context.Background()}
		l.w.reg.begin(l.leaving)
	})
	l.err, l.back, l.idle = l.result(ctx), time.Now(), time.Time{}
	if l.back.Sub(began) < l.short() {
		l.idle = l.back
	} else {
		l.pauses = 0
	}
	return l.err
}

// short is how long a term lasts that Lead pauses after, but for its Unlock, which counts too: where
// something goes wrong that may take as long.
func (l *leader) short() time.Duration {
	r := l.w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.touched(l.c.index, time.Now().Add(-lingers), whatever) {
		return 0
	}
	return time.Second - 4*r.w.plan.slowest() - 10*hookTime
}

// result is what the function returns.
func (l *leader) result(ctx context.Context) error {
	if l.op.Terms > 0 && l.terms >= l.op.Terms {
		if l.op.Function != "" {
			l.threw = true
			return l.op.finish(ctx, l.lease)
		}
		return errFailed
	}
	if ctx.Err() == nil {
		return nil
	}
	switch l.op.Ends {
	case "cause":
		return context.Cause(ctx)
	case "part":
		return errPart
	case "other":
		return errFailed
	case "joined":
		return errors.Join(context.Cause(ctx), errFailed)
	}
	return nil
}

// wasLost reports whether the last term was.
func (l *leader) wasLost() bool { return l.lost || errors.Is(l.lease.Err(), dlock.ErrLost) }

// mayBeLost reports whether the last term was lost, as its Unlock may have been the first to hear.
func (l *leader) mayBeLost() bool { return l.wasLost() || l.doubted }

// left notes that an Unlock has returned, which only Lead has seen.
func (l *leader) left() {
	if l.leaving == nil {
		return
	}
	l.w.reg.mu.Lock()
	defer l.w.reg.mu.Unlock()
	l.w.reg.unlocking(l.leaving, l.all)
	l.doubted = l.w.reg.mayLose(l.leaving, l.all)
	l.leaving = nil
}

// throws checks that Lead has ended as its function has, if that did not return.
func (l *leader) throws(e ending) {
	r := l.w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.dead[l.c.index]:
	case l.threw:
		r.endsAs(l.call, l.op, l.lease, e)
	case e.exited && l.c.hooks.exits: // a hook has ended the goroutine before the function could
	case e.exited, e.thrown == errThrown:
		r.violate("Do ends as its function", "c%d leads %v: %+v", l.c.index, l.named(l.op), e)
	}
}

// judge checks how Lead has ended.
func (l *leader) judge(err error) {
	r := l.w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead[l.c.index] || err == errPanicked {
		return
	}
	names := l.named(l.op)
	r.note(l.c.index, "lead %v: %v", names, err)
	bound := min(firstAnswer, 2*max(l.op.TTL, r.w.plan.TTL)) + l.undoing() // that of an Unlock
	if end := r.goesOn(l.c.index, later(l.end, l.back)); time.Since(end) > bound && !r.stuttered(end) && !r.heldUpSince(end) {
		r.violate("every call ends", "c%d lead %v ended %v after its context and the last term", l.c.index, names, time.Since(end))
	}
	cause := context.Cause(l.ctx)
	switch {
	case err == nil:
		r.violate("Lead ends", "c%d %v: nil", l.c.index, names)
	case cause != nil && errors.Is(err, cause):
		own, isOwn := l.err.(*dlock.Error) // Lead says in words of its own that the client is closed
		closed := isOwn && own.Kind == dlock.ErrClosed && errors.Is(err, dlock.ErrClosed)
		if l.err != nil && !l.mayBeLost() && !closed && !errors.Is(err, l.err) {
			r.violate("Lead ends", "c%d %v: %v, without %v", l.c.index, names, err, l.err)
		}
		if errors.Is(cause, l.err) && err.Error() != cause.Error() && !errors.Is(err, dlock.ErrClosed) { // that of its client is another end
			r.violate("Lead ends", "c%d %v: %v, and %v is no other than why its context is done", l.c.index, names, err, l.err)
		}
	case l.err != nil && !l.wasLost() && errors.Is(err, l.err):
	case errors.Is(err, dlock.ErrClosed):
		if !r.isClosing(l.c.index, l.o) {
			r.violate("errors are true", "c%d lead %v: closed, and is not", l.c.index, names)
		}
	case errors.Is(err, dlock.ErrAuth) && r.touched(l.c.index, time.Now().Add(-lingers), denies):
	case errors.Is(err, dlock.ErrConflict) && r.isAnyStrange(names, time.Now().Add(-lingers)):
	case l.o != nil && (errors.Is(err, dlock.ErrUpgrade) || errors.Is(err, dlock.ErrReentry)):
	default:
		r.violate("Lead ends", "c%d %v: %v, and its context %v", l.c.index, names, err, cause)
	}
}
