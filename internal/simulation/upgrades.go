package simulation

import (
	"time"
)

// Who asks to write under its own lease to read is refused at once: whatever it waited for might wait for
// that lease.

// isUpgrade reports whether a call asks to write where its owner certainly reads.
func (r *register) isUpgrade(c *call, o *owner) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == nil || len(c.names) != 1 || c.byName || !c.grabs() {
		return false
	}
	b := o.find(c.client, c.names[0], 0)
	return b != nil && b.live() && b.shared && b.lowering == 0 && (!b.downFrom || !b.lowered.IsZero())
}

// refusesUpgrade checks how soon such a call has ended.
func (r *register) refusesUpgrade(c *call) {
	if !c.upgrades {
		return
	}
	r.coverage["an upgrade refused"]++
	bound := late
	if r.w.plan.Clients[c.client].Hooks == "slow" {
		bound += 10 * hookTime
	}
	if took := time.Since(c.start); took > bound && !c.heldUp && !r.stuttered(c.start) && !r.stood(c.client, c.start) {
		r.violate("an upgrade is refused at once", "c%d %s %v, which its owner reads, has taken %v", c.client, c.what, c.names, took)
	}
}
