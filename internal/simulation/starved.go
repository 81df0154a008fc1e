package simulation

import "slices"

// mostPassed is how many may get a lock on a quorum while another client waits for it.
const mostPassed = 64

// starves checks that who waits at a quorum gets its turn. First come is first served there as
// long as all clients have the same front, and two that block each other ask again at random:
// so where nothing goes wrong a few may come before who came first, and not any number. A
// client passes a lock on within itself for a while, as on one server.
func (r *register) starves(b *belief) {
	if r.w.plan.Backend != "quorum" || b.parent != nil {
		return
	}
	for c := range r.calls {
		if !c.waits || c.nested || len(c.names) > 1 || c.names[0] != b.name || c.client == b.client || r.dead[c.client] || r.isUsedUp(c) {
			continue
		}
		c.passed++
		if c.passed > mostPassed && !c.counted && r.calm(c.start) && !slices.ContainsFunc(r.touches, isBreak) {
			c.counted = true
			r.violate("nobody is passed by", "c%d %s %s: %d came before it on a quorum", c.client, c.what, b.name, c.passed)
		}
	}
}

func isBreak(t touched) bool { return t.kind == "break" }

// isUsedUp reports whether a call may have no grant that it can use: where all servers are needed, and it, or
// one ahead of it, has a limit of its own, that may be over when the last of them has granted.
func (r *register) isUsedUp(c *call) bool {
	return r.w.plan.needsAll() && (c.hurried || r.isBehindHurried(c))
}

// standsBehindVain reports whether a call, or one of its client that asks for the same lock, may ask for ever: the
// hold is over when a quorum has granted it.
func (r *register) standsBehindVain(c *call) bool {
	for o := range r.calls {
		if o.client == c.client && o.inVain && o.waits && slices.ContainsFunc(o.names, func(n string) bool { return slices.Contains(c.names, n) }) {
			return true
		}
	}
	return false
}
