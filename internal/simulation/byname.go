package simulation

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// A nameLocker is a lock by name as a Locker.
type nameLocker struct {
	locks *dlock.NamedLocks
	name  string
}

func (l nameLocker) Lock(ctx context.Context) (*dlock.Lease, error) { return l.locks.Lock(ctx, l.name) }

func (l nameLocker) TryLock(ctx context.Context) (*dlock.Lease, error) {
	return l.locks.TryLock(ctx, l.name)
}

// ends unlocks a lease, by name if it was locked so.
func (a *actor) ends(ctx context.Context, lease *dlock.Lease, op *Op) error {
	if op.ByName {
		name := a.local(a.named(op)[0])
		return a.tellsEnd(ctx, a.c.byName.Lease(name), func(ctx context.Context) error { return a.c.byName.Unlock(ctx, name) })
	}
	return a.tellsEnd(ctx, lease, lease.Unlock)
}

// holdByName is hold for a lock by name. Whoever has lost it locks it anew, or does without.
func (a *actor) holdByName(ctx context.Context, lease *dlock.Lease, o *owner, op *Op) {
	r, name := a.w.reg, a.named(op)[0]
	r.takesName(o.beliefs[0])
	var beside group
	defer beside.wait()
	a.use(ctx, lease, o, op, func() {
		if got := a.c.byName.Lease(a.local(name)); got != lease {
			a.violate("a name belongs to one", "c%d %s: another lease than that of who has it: %v", a.c.index, name, o.beliefs[0])
		}
		switch {
		case op.Relock == "before":
			lease, o = a.relock(lease, o, op)
		case op.Relock == "beside" && lease.Err() != nil && a.w.hasServers(): // without, it takes no time
			beside.run(func() { a.relockForNobody(lease, name) })
			time.Sleep(a.w.plan.nearest()) // it is on its way
			if a.c.byName.Lease(a.local(name)) != lease {
				a.unlocksAgain(o.beliefs, op) // it was passed on within the client
				return
			}
		}
		r.leavesName(o.beliefs[0])
		a.unlock(lease, o.beliefs, op)
	})
}

// relock locks a name anew whose lock was lost, and holds it for as long again.
func (a *actor) relock(lease *dlock.Lease, o *owner, op *Op) (*dlock.Lease, *owner) {
	name := a.named(op)[0]
	lost := lease.Err() != nil
	c, again, err := a.relocks(name)
	switch {
	case err != nil:
		a.w.reg.returned(c, err)
		return lease, o
	case again == lease:
		a.w.reg.returned(c, nil)
		if lost {
			a.violate("a name is locked anew", "c%d %s: relocked as it was lost, and it has the lease that was", a.c.index, name)
		}
		return lease, o
	}
	a.w.reg.gives(o.beliefs)
	a.w.reg.leavesName(o.beliefs[0])
	all := a.w.reg.grant(c, nil, again, again.Context(context.Background()), op, false)
	if all == nil {
		return again, o
	}
	a.w.reg.spies(again, all)
	a.w.reg.takesName(all[0])
	_ = a.rest(all[0].ctx, op.Hold/2)
	return again, &owner{all, nil}
}

// relocks locks a name anew.
func (a *actor) relocks(name string) (c *call, lease *dlock.Lease, err error) {
	op := &Op{Call: "lock", Names: []int{0}, Wait: a.w.plan.TTL}
	ctx, cancel := a.wait(context.Background(), op)
	defer cancel()
	c = &call{client: a.c.index, what: "lock", names: []string{name}, ctx: ctx, waits: true, byName: true, relocks: true}
	a.bound(c, op)
	a.w.reg.begin(c)
	err = a.c.hooks.survive(func() (err error) {
		lease, err = a.c.byName.Relock(withCall(ctx, c), a.local(name))
		return err
	})
	return c, lease, err
}

// relockForNobody locks a name anew while whoever has it unlocks that: nobody may have the lock then.
func (a *actor) relockForNobody(lost *dlock.Lease, name string) {
	c, got, err := a.relocks(name)
	a.w.reg.returned(c, err)
	if err == nil && got == lost {
		a.violate("a name is locked anew", "c%d %s: relocked as it was lost, and it has the lease that was", a.c.index, name)
	}
}

// unlocksAgain unlocks a name that was locked anew.
func (a *actor) unlocksAgain(lost []*belief, op *Op) {
	a.w.reg.gives(lost)
	a.w.reg.leavesName(lost[0])
	_ = a.c.hooks.survive(func() error { return a.ends(context.Background(), nil, op) })
}

// takesName checks that a name belongs to one caller until that has unlocked it.
func (r *register) takesName(b *belief) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := party{b.client, b.name}
	if o := r.named[p]; o != nil && !r.closing[b.client] {
		r.violate("a name belongs to one", "%v, and %v has not unlocked it", b, o)
	}
	r.named[p] = b
}

func (r *register) leavesName(b *belief) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := party{b.client, b.name}
	delete(r.named, p)
	r.left[p] = time.Now()
}

// isNamed reports whether a call by name may be told that another caller has not unlocked the name.
func (r *register) isNamed(c *call, name string) bool {
	p := party{c.client, name}
	return c.byName && (r.named[p] != nil || !r.left[p].Before(c.start))
}

// isNotHeld reports whether a Relock may say that its name is not locked.
func (r *register) isNotHeld(c *call, err error) bool {
	return c.relocks && errors.Is(err, dlock.ErrNotHeld)
}

// namesLeft checks that nothing is kept of names that were all unlocked.
func (w *world) namesLeft() {
	for _, c := range w.clients {
		for _, name := range w.names() {
			prefix := w.plan.Clients[c.index].Prefix
			if c.byName == nil || c.dead.Load() || !strings.HasPrefix(name, prefix) {
				continue
			}
			if lease := c.byName.Lease(name[len(prefix):]); lease != nil {
				w.reg.mu.Lock()
				w.reg.violate("a name belongs to one", "c%d keeps a lease of %q, which everybody has unlocked: %v", c.index, name, lease.Err())
				w.reg.mu.Unlock()
			}
		}
	}
}
