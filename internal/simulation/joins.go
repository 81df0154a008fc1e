package simulation

import (
	"slices"
	"strings"
	"time"
)

// joins checks that who wants to read does not wait while only readers have the lock and no
// writer waits: neither at the server, where a queue behind readers begins with a writer or is
// empty, nor in its own client. It is called while somebody has the lock, and asks for what
// moves asks for of a free one, with the same bounds. A hold that may last no longer than a
// round trip runs out before it is known, again and again.
func (r *register) joins(name string, t truth) {
	now := time.Now()
	for c := range r.calls {
		if c.what != "rlock" || c.nested || c.hurried || c.names[0] != name || r.dead[c.client] {
			continue
		}
		if t.holder != "" || wantsToWrite(t) || r.ownWrites(c) {
			c.barred = now
			continue
		}
		since, bound := later(later(c.start, c.behind), c.barred), prompt
		if !r.calm(since) || r.mutes(c.client) {
			bound = slowest + r.w.steppedBack()
		}
		if now.Sub(since) > bound && !r.touched(c.client, now.Add(-bound), whatever) && !c.counted && now.Sub(r.readersSince(name, since)) > bound {
			c.counted = true
			r.violate("readers join readers", "c%d rlock %s waits for %v, and readers alone have had it for %v", c.client, name, now.Sub(c.start), now.Sub(since))
		}
	}
}

// wantsToWrite reports whether a writer waits at the server.
func wantsToWrite(t truth) bool {
	return slices.ContainsFunc(t.queue, func(id string) bool { return id[0] == 'w' })
}

// ownWrites reports whether a writer of the client of a call has the lock, or asks for it.
func (r *register) ownWrites(c *call) bool {
	name := c.names[0]
	for o := range r.calls {
		reads := strings.HasSuffix(o.what, "rlock") || o.asks
		if o.client == c.client && !reads && slices.Contains(o.names, name) {
			return true
		}
	}
	return slices.ContainsFunc(r.beliefs, func(b *belief) bool {
		return b.client == c.client && b.name == name && !b.shared && b.live()
	})
}

// readersSince is since when no writer has had or wanted a lock, as far as the server knows, if
// that is later: between two looks one may have come and gone.
func (r *register) readersSince(name string, since time.Time) time.Time {
	states := r.lock(name).states
	for i := len(states) - 1; i >= 0; i-- {
		if states[i].holder == "" && !wantsToWrite(states[i]) {
			continue
		}
		if i+1 < len(states) {
			return later(since, states[i+1].at)
		}
		return time.Now()
	}
	return since
}
