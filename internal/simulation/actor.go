package simulation

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// A group counts goroutines.
type group struct{ all sync.WaitGroup }

func (g *group) run(f func()) { g.all.Go(f) }
func (g *group) wait()        { g.all.Wait() }

// An owner is whoever made a call under leases, innermost first.
type owner struct {
	beliefs []*belief
	outer   *owner
}

// find returns the innermost belief of a client in a name that is entered again, under that token.
// It may have ended meanwhile.
func (o *owner) find(client int, name string, token uint64) *belief {
	for ; o != nil; o = o.outer {
		for _, b := range o.beliefs {
			if b.client == client && b.name == name && (b.lease.Err() == nil || b.token == token) {
				return b
			}
		}
	}
	return nil
}

// enters returns the belief that a lease of a call is an entry into, nil if it is none. A lease of readers that was
// over as the call began is not entered, though readers who join others of the same phase have its token.
func (c *call) enters(o *owner, name string, token uint64) *belief {
	if !c.entered[name] {
		return nil
	}
	return o.find(c.client, name, token)
}

// An actor is one goroutine of a party.
type actor struct {
	w      *world
	c      *client
	asides *group // what it asks meanwhile
}

func (w *world) work(c *client, ops []Op) {
	a := &actor{w, c, new(group)}
	defer a.asides.wait()
	for i := range ops {
		if w.beat() != nil || c.dead.Load() {
			return
		}
		a.do(context.Background(), nil, &ops[i])
	}
}

// do does one op under ctx, which is that of a lease or of nobody.
func (a *actor) do(ctx context.Context, o *owner, op *Op) {
	if sleep(a.w.over, op.Pause) != nil {
		return
	}
	names := a.named(op)
	wait, cancel := a.wait(ctx, op)
	defer cancel()
	if op.asks() {
		a.ask(wait, o, op)
		return
	}
	if op.Call == "lead" {
		a.lead(wait, o, op, names)
		return
	}
	shared := op.Call == "rlock" || op.Call == "tryrlock"
	c := &call{client: a.c.index, what: op.Call, names: names, ctx: wait, cancel: cancel, nested: o != nil, within: o}
	if op.beyond() > 0 || op.neverEnds() { // nobody can end it at once
		c.cancel = nil
	}
	c.waits = op.Call == "lock" || op.Call == "rlock" || op.Call == "multi" || op.Call == "do" && !op.Adapter
	c.byName, c.plain = op.ByName, op.isPlain()
	c.upgrades = a.w.reg.isUpgrade(c, o)
	connects := time.Duration(len(names)) * a.w.plan.taking() // and asks, for each lock
	c.hurried = op.MaxWait > 0 || op.MaxHold > 0 && op.MaxHold < connects
	c.inVain = op.MaxHold > 0 && op.MaxHold < 4*a.w.plan.slowest()
	c.brief = a.w.reg.isShort(a.w.plan.leaseOf(op))
	a.bound(c, op)
	a.w.reg.begin(c)
	a.aside(op, "call")
	if op.Call == "do" {
		a.doDo(wait, c, o, op)
		return
	}
	var lease *dlock.Lease
	err := a.c.hooks.survive(func() (err error) {
		lease, err = a.acquire(op.foreign(withCall(wait, c)), op, names)
		return op.withoutCause(wait, err)
	})
	if err != nil {
		a.w.reg.returned(c, err)
		a.w.reg.tellsOuter(c, o, err)
		return
	}
	inner := lease.Context(op.parent(context.WithoutCancel(ctx)))
	if o != nil {
		inner = lease.Context(op.parent(ctx))
	}
	all := a.w.reg.grant(c, o, lease, inner, op, shared)
	if all == nil {
		return // it is dead
	}
	a.w.reg.spies(lease, all)
	if a.isDropped(op) {
		a.asides.run(func() { a.findsDropped(all[0]) })
	}
	if op.ByName {
		a.holdByName(inner, lease, &owner{all, o}, op)
		return
	}
	a.hold(inner, lease, &owner{all, o}, op)
}

// wait is the context that bounds a call.
func (a *actor) wait(ctx context.Context, op *Op) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(causes[op.Cause]) }
	unhook := context.AfterFunc(a.w.over, cancel)
	stop := func() { unhook(); cancel() }
	switch {
	case op.Wait < 0:
		cancel()
	case op.Wait > 0 && op.Cancel:
		t := time.AfterFunc(op.Wait, cancel)
		return ctx, func() { t.Stop(); stop() }
	case op.Wait > 0:
		timed, done := op.limited(ctx, op.Wait)
		return timed, func() { done(); stop() }
	}
	return ctx, stop
}

// undoing is how long a call that fails may take to give back what it had got. One of a
// quorum may take three times that.
const undoing = 100 * time.Millisecond

func (a *actor) undoing() time.Duration { return a.w.undoing(a.c.index) }

func (w *world) undoing(client int) time.Duration {
	if w.plan.Backend == "quorum" {
		return 3*undoing + 10*hookTime
	}
	if w.plan.Clients[client].Hooks == "slow" {
		return undoing + 10*hookTime
	}
	return undoing
}

// firstAnswer is how long a server that has never answered is waited for.
const firstAnswer = 3 * time.Second

// bound says when a call must have ended.
func (a *actor) bound(c *call, op *Op) {
	now := time.Now()
	if op.MaxWait > 0 {
		c.patient = now.Add(op.MaxWait)
	}
	end := time.Time{}
	panics := a.w.plan.Clients[a.c.index].Hooks == "panic" // who panics unlocks what it has got first
	if op.Wait != 0 && !op.neverEnds() {
		end = now.Add(max(op.Wait, 0) + op.beyond() + a.undoing())
		if panics {
			end = end.Add(firstAnswer)
		}
	}
	if m := now.Add(op.MaxWait + a.undoing()); op.MaxWait > 0 && c.waits && !panics && op.beyond() == 0 && (end.IsZero() || m.Before(end)) {
		end = m
	}
	last := a.w.reg.began.Add(a.w.plan.Length) // when its context ends, unless it has already
	if now.After(last) {
		last = now
	}
	if last = last.Add(op.beyond() + a.undoing()); !op.neverEnds() && (end.IsZero() || last.Before(end)) {
		end = last
	}
	c.bound, c.limit = end, end
	if !c.waits && !panics {
		c.answerWithin = firstAnswer*time.Duration(len(op.Names)) + a.undoing()
		c.awaitsAnswerFrom(now)
	}
}

// awaitsAnswerFrom gives a try the time of a first answer from then on, and no more than its context has.
func (c *call) awaitsAnswerFrom(t time.Time) {
	c.bound = t.Add(c.answerWithin)
	if !c.limit.IsZero() && c.limit.Before(c.bound) {
		c.bound = c.limit
	}
}

func (a *actor) acquire(ctx context.Context, op *Op, names []string) (*dlock.Lease, error) {
	l := a.locker(op, a.locals(names))
	if op.Call == "lock" || op.Call == "rlock" || op.Call == "multi" {
		return l.Lock(ctx)
	}
	return l.TryLock(ctx)
}

// locker is that of an op, for names as its client knows them.
func (a *actor) locker(op *Op, names []string) dlock.Locker {
	return a.tells(a.dropped(a.untold(op, names), op), op)
}

// untold is locker without a word to hooks of who calls it.
func (a *actor) untold(op *Op, names []string) dlock.Locker {
	options := settings(op)
	switch {
	case op.ByName:
		return nameLocker{a.c.byName, names[0]}
	case op.Call == "multi", op.Call == "trymulti":
		return a.c.Multi(names, options...)
	case op.Call != "rlock" && op.Call != "tryrlock":
		return a.c.Mutex(names[0], options...)
	case op.Adapter:
		return a.c.RWMutex(names[0], options...).RLocker()
	}
	return reader{a.c.RWMutex(names[0], options...)}
}

// A reader is a Locker whose Lock and TryLock are RLock and TryRLock.
type reader struct{ m *dlock.RWMutex }

func (r reader) Lock(ctx context.Context) (*dlock.Lease, error)    { return r.m.RLock(ctx) }
func (r reader) TryLock(ctx context.Context) (*dlock.Lease, error) { return r.m.TryRLock(ctx) }

func settings(op *Op) []dlock.Option {
	var o []dlock.Option
	if op.TTL > 0 {
		o = append(o, dlock.WithTTL(op.TTL))
	}
	if op.MaxHold > 0 {
		o = append(o, dlock.WithMaxHold(op.MaxHold))
	}
	if op.MinHold > 0 {
		o = append(o, dlock.WithMinHold(op.MinHold))
	}
	if op.MaxWait > 0 {
		o = append(o, dlock.WithMaxWait(op.MaxWait))
	}
	if op.NoReentry {
		o = append(o, dlock.WithoutReentry())
	}
	if op.Label != "" {
		o = append(o, dlock.WithLabel(op.Label))
	}
	return o
}

// doDo is do by way of dlock.Do.
func (a *actor) doDo(wait context.Context, c *call, o *owner, op *Op) {
	entered, lost := false, false
	var all []*belief
	var failed error
	leaving := &call{client: c.client, what: "unlock", names: c.names, ctx: wait}
	wait, unlocks := a.c.hooks.unlocks(withCall(wait, c))
	wait = op.foreign(wait)
	work := func(ctx context.Context, lease *dlock.Lease) error {
		entered = true
		unlocks(lease)
		if all = a.w.reg.grant(c, o, lease, ctx, op, false); all == nil {
			return nil
		}
		a.w.reg.spies(lease, all)
		a.use(ctx, lease, &owner{all, o}, op, func() {
			lost = errors.Is(lease.Err(), dlock.ErrLost)
			a.passesOn(all, op)
			a.w.reg.gives(all)
			a.w.reg.begin(leaving)
		})
		failed = op.finish(ctx, lease)
		return failed
	}
	do := dlock.Do
	if op.Adapter {
		do = dlock.TryDo
	}
	end := op.endingOf(a.c.hooks, func() error { return do(wait, a.locker(op, a.locals(c.names)), work) })
	if !entered {
		err := cmp.Or(end.err, end.thrown)
		a.w.reg.returned(c, err)
		a.w.reg.tellsOuter(c, o, err)
		return
	}
	a.w.reg.mu.Lock()
	defer a.w.reg.mu.Unlock()
	a.w.reg.arrives(leaving, end.err)
	a.w.reg.unlocking(leaving, all)
	a.w.reg.givesUp(leaving, end.err)
	if all == nil || a.w.reg.dead[c.client] {
		return
	}
	a.w.reg.endsAs(c, op, all[0].lease, end)
	if end.thrown == nil && !end.exited && !end.isHooks() {
		a.w.reg.judgeDo(leaving, all, failed, end.err)
		if end.err == nil && lost {
			a.w.reg.violate("a loss is told", "c%d do %v: nil, and it was lost", c.client, c.names)
		}
	}
}

// hold uses a lease and unlocks it.
func (a *actor) hold(ctx context.Context, lease *dlock.Lease, o *owner, op *Op) {
	if op.Forget {
		return
	}
	a.use(ctx, lease, o, op, func() { a.endsAmong(ctx, lease, o, op) })
}

// use is what is done under a lease.
func (a *actor) use(ctx context.Context, lease *dlock.Lease, o *owner, op *Op, unlock func()) {
	defer unlock()
	a.says(ctx, lease, o)
	_ = a.rest(ctx, op.Hold/2)
	a.lapses(op)
	var children group
	switch downgrades := op.Downgrade && op.Call != "multi" && op.Call != "trymulti"; {
	case downgrades && op.Beside > 0:
		children.run(func() { a.downgradeBeside(ctx, lease, o, op) })
	case downgrades:
		a.downgrade(ctx, lease, o, op)
	}
	for i := range op.Inside {
		if op.Together {
			children.run(func() { a.doFor(ctx, o, &op.Inside[i]) })
		} else {
			a.doFor(ctx, o, &op.Inside[i])
		}
	}
	if !op.Early {
		children.wait()
	} else {
		defer children.wait()
	}
	if op.Yields {
		a.restYielding(ctx, lease, op.Hold-op.Hold/2)
		return
	}
	_ = a.rest(ctx, op.Hold-op.Hold/2)
}

// rest works for d, or until the lease or the run is over.
func (a *actor) rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-a.w.over.Done():
	}
	return ctx.Err()
}

func (a *actor) downgrade(ctx context.Context, lease *dlock.Lease, o *owner, op *Op) {
	if op.Brief > 0 {
		a.downgradeBriefly(ctx, lease, o, op)
		return
	}
	_ = a.downgradeOnce(ctx, lease, o, op)
}

func (a *actor) downgradeOnce(ctx context.Context, lease *dlock.Lease, o *owner, op *Op) error {
	if lease.Err() != nil {
		return nil
	}
	a.aside(op, "downgrade")
	weak := a.w.reg.weakens(o.beliefs)
	c := &call{client: a.c.index, what: "downgrade", names: a.named(op), ctx: ctx, nested: true, within: o}
	c.bound = time.Now().Add(2*a.w.plan.TTL + op.TTL + a.undoing())
	c.under = o.beliefs
	a.w.reg.begin(c)
	err := op.withoutCause(ctx, lease.Downgrade(ctx))
	a.w.reg.returned(c, err)
	a.w.reg.tellsOuter(c, o, err)
	a.w.reg.lowered(o.beliefs, weak, err)
	if err == nil {
		a.readsOnly(lease, c)
		a.w.reg.tell(a.c.index, "downgraded %v", c.names)
	}
	return err
}

func (a *actor) named(op *Op) []string {
	var names []string
	for _, n := range op.Names {
		if name := a.w.plan.fullName(a.c.index, n); !slices.Contains(names, name) { // with its prefix one may be another
			names = append(names, name)
		}
	}
	return names
}

// unlock unlocks a lease, and checks what that says.
func (a *actor) unlock(lease *dlock.Lease, all []*belief, op *Op) {
	r := a.w.reg
	ctx, cancel := context.WithCancel(context.Background())
	bound := min(firstAnswer, 2*max(op.TTL, a.w.plan.TTL))
	switch op.Unlock {
	case "dead":
		cancel()
	case "short":
		cancel()
		ctx, cancel = op.limited(context.Background(), op.Limit)
		bound = op.Limit + op.beyond()
		if bound <= 0 || op.neverEnds() {
			bound = firstAnswer
		}
	}
	defer cancel()
	a.aside(op, "unlock")
	a.passesOn(all, op)
	r.gives(all)
	c := &call{client: a.c.index, what: "unlock", names: a.named(op), ctx: ctx, nested: true}
	c.bound = time.Now().Add(bound + a.undoing())
	r.begin(c)
	r.beginsEnd(all)
	before, wanted := lease.Err(), isClosed(lease.Wanted())
	err := a.c.hooks.survive(func() error { return op.withoutCause(ctx, a.ends(op.foreign(withCall(ctx, c)), lease, op)) })
	a.staysWanted(lease, wanted, all)
	if err == nil && before != nil {
		r.mu.Lock()
		r.violate("a loss is told", "c%d unlock %v: nil after %v", a.c.index, c.names, before)
		r.mu.Unlock()
	}
	if err == nil {
		r.tell(a.c.index, "unlocked %v", c.names)
	}
	if op.Twice && a.c.hooks.survive(func() error { return lease.Unlock(ctx) }) == nil {
		r.mu.Lock()
		r.violate("an end is an end", "c%d unlocked %v twice", a.c.index, c.names)
		r.mu.Unlock()
	}
	r.unlocked(c, all, op, before, err)
	r.endsOnce(c, all, err)
}

// slotMoved reports whether a slot has moved during a call: what changes a hold waits until
// all keys of the lock are on one node, and no hold is renewed meanwhile.
func (r *register) slotMoved(c *call) bool {
	return r.touched(c.client, c.start, func(t touch) bool { return t.splits })
}

// mayLose reports whether an Unlock may be told that what it unlocks was lost. A hook may have held it up since.
func (r *register) mayLose(c *call, all []*belief) bool {
	limited, ttl := slices.ContainsFunc(all, func(b *belief) bool { return b.limited }), all[0].ttl
	return limited || r.isShort(ttl) || r.mayHaveCost(c.client, c.start.Add(-2*ttl-lingers), ttl) || r.slotMoved(c)
}

// unlocked notes how an Unlock has ended.
func (r *register) unlocked(c *call, all []*belief, op *Op, before, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrives(c, err)
	r.unlocking(c, all)
	r.givesUp(c, err)
	if r.dead[c.client] {
		return
	}
	r.inTime(c)
	if err != nil {
		r.note(c.client, "unlock %v: %v", c.names, brief(err))
	}
	r.mustWarn(c, all, op, err)
	ended := slices.ContainsFunc(all, func(b *belief) bool { return r.endsBy(b, c) }) // by itself
	switch {
	case err == nil:
		r.leavesTo(all, op)
	case err == errPanicked, r.isDenied(c, err), r.isConflict(c, err), errors.Is(err, dlock.ErrLost) && r.isAnyStrange(c.names, all[0].asked), kindOf(err) == dlock.ErrUnlocked: // see endsOnce
	case errors.Is(err, dlock.ErrClosed):
		if !r.closing[c.client] {
			r.violate("errors are true", "c%d unlock %v: closed, and is not", c.client, c.names)
		}
	case errors.Is(err, dlock.ErrLost):
		if before == nil && r.w.knowsFaults() && !r.mayLose(c, all) {
			r.violate("nothing is lost for nothing", "c%d unlock %v: %v", c.client, c.names, err)
		}
	case errors.Is(err, dlock.ErrUnavailable):
		if c.ctx.Err() == nil && !ended && !r.isAstray(c.client, c.names) && !r.touched(c.client, c.start.Add(-lingers), func(t touch) bool { return t.fails }) {
			r.violate("reachable is available", "c%d unlock %v: %v", c.client, c.names, err)
		}
	default:
		r.violate("errors are true", "c%d unlock %v: %v", c.client, c.names, err)
	}
}
