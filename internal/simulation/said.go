package simulation

import (
	"context"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// says checks what a lease that a call has got says of itself, and what its context says of all locks.
// It is called by whoever works under that context.
func (a *actor) says(ctx context.Context, lease *dlock.Lease, o *owner) {
	first := o.beliefs[0]
	a.isNested(lease, o.beliefs)
	a.isToldOf(lease, o.beliefs)
	if multi := first.multi; !multi && lease.Name() != a.local(first.name) || lease.Shared() != first.shared && lease.Err() == nil {
		a.violate("a lease is what it says", "%v: name %q, shared %t", first, lease.Name(), lease.Shared())
	}
	if lease.Label() != first.label && lease.Err() == nil && (!first.multi || first.parent == nil) {
		a.violate("a lease is what it says", "%v: label %q, and not %q", first, lease.Label(), first.label)
	}
	for _, name := range a.w.names() {
		if prefix := a.w.plan.Clients[a.c.index].Prefix; strings.HasPrefix(name, prefix) && len(name) > len(prefix) {
			a.heldIs(ctx, lease, o, name)
		}
	}
}

// heldIs checks that Held knows the innermost live lease of the context on a lock, and no other.
func (a *actor) heldIs(ctx context.Context, lease *dlock.Lease, o *owner, name string) {
	mine := slices.IndexFunc(o.beliefs, func(b *belief) bool { return b.name == name }) >= 0
	outer := o.find(a.c.index, name, 0)
	got, held := a.c.RWMutex(a.local(name)).Held(ctx)
	switch {
	case !held && got == nil:
		if b := o.find(a.c.index, name, 0); b != nil && a.w.reg.isLive(b) {
			a.violate("Held knows the lease", "c%d %s: none, and %v is alive", a.c.index, name, b)
		}
	case !held || got == nil || outer == nil:
		a.violate("Held knows the lease", "c%d %s: %t, and no lease of the context is alive", a.c.index, name, held)
	case mine && lease.Err() == nil && !o.beliefs[0].multi && got != lease:
		a.violate("Held knows the lease", "c%d %s: another lease than that of the context", a.c.index, name)
	case got.TokenOf(a.local(name)) != outer.token && outer.lease.Err() == nil:
		a.violate("Held knows the lease", "c%d %s: token %d, and %v is alive", a.c.index, name, got.TokenOf(a.local(name)), outer)
	}
}

func (r *register) isLive(b *belief) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return b.live()
}

func (a *actor) violate(rule, format string, args ...any) {
	a.w.reg.mu.Lock()
	defer a.w.reg.mu.Unlock()
	a.w.reg.violate(rule, format, args...)
}

// labelOf is the label of the hold that a lease has: an entry shares that of the lease it is made under.
func (r *register) labelOf(b *belief, op *Op) string {
	switch {
	case b.parent != nil:
		return b.parent.label
	case op.Label != "":
		return op.Label
	}
	return r.w.plan.Clients[b.client].Label
}

// labelled checks that Inspect shows the label of who has had a lock all the time.
func (r *register) labelled(c *call, s dlock.Snapshot) {
	if r.anyDataLost() || len(s.Holders) == 0 {
		return
	}
	for _, b := range r.beliefs {
		if b.name != c.names[0] || b.parent != nil || b.downFrom || r.isByHand(b.name, b.asked) || !b.live() || !b.granted.Before(c.start) || r.hasBroken(b.granted) {
			continue
		}
		shows := func(p backend.Party) bool { return p.Label == b.label && (p.Mode == backend.Shared) == b.shared }
		if !slices.ContainsFunc(s.Holders, shows) {
			r.violate("a label is shown", "c%d inspect %v: %+v, and %v has label %q", c.client, c.names, s.Holders, b, b.label)
		}
	}
}
