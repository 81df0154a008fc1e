package simulation

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A loss that a server has told a client ends every lease on that hold at once, whoever of the client
// has asked: who goes on for the rest of the lease writes beside the next holder. The servers see
// what scripts answer, and the pipes when an answer has been read. On a quorum the word of one
// server is that of a part, and ends nothing.

// A loss is what an answer says of a hold that is there no longer.
type loss struct {
	name string
	id   string
	by   string // the script that was run
	one  bool   // it was asked for in one key: what was downgraded is in another

	sent, began time.Time // when its client had last asked something, and since when it may have waited to
}

// tellers are the scripts that tell of a loss, by how they begin.
var tellers = map[string]string{
	"renew":     "-- Keeps holds alive.",
	"enter":     "-- Proves a hold, refreshes it,",
	"downgrade": "-- Turns a hold into one of another kind,",
}

// lossesIn are what the answer of a script says is lost.
func lossesIn(source string, keys, args []string, reply any) []loss {
	all, _ := reply.([]any)
	if len(all) < 2 || len(keys) == 0 || len(args) < 3 {
		return nil
	}
	switch {
	case strings.HasPrefix(source, tellers["renew"]):
		return lostRenewals(keys, args, all)
	case strings.HasPrefix(source, tellers["enter"]) && all[0] == int64(0):
		return []loss{{name: locksOf(keys)[0], id: args[0], by: "enter"}}
	case strings.HasPrefix(source, tellers["downgrade"]) && args[1] == "shared" && all[0] == "LOST":
		return []loss{{name: locksOf(keys)[0], id: args[0], by: "downgrade"}}
	}
	return nil
}

// lostRenewals are those of several holds whose own expiry says that they are lost, or broken.
func lostRenewals(keys, args []string, all []any) (lost []loss) {
	each, err := strconv.Atoi(args[0])
	if err != nil || each < 1 {
		return nil
	}
	for i := 2; i+1 < len(all); i += 2 {
		which, _ := all[i].(int64)
		if e, ok := all[i+1].(int64); !ok || e != 0 && e != 1 {
			continue
		}
		name := locksOf(keys[each*int(which-1):])[0]
		lost = append(lost, loss{name: name, id: args[which+1], by: "renew", one: each == 1})
	}
	return lost
}

// sourceOf is the script that a command has run, empty if it has run none.
func (s *server) sourceOf(cmd string, args []string) string {
	if len(args) > 0 && cmd == "EVALSHA" {
		return s.scripts[args[0]]
	}
	return strings.Join(args[:min(len(args), 1)], "")
}

// notes keeps what a script has just told p of losses, until that has left.
func (p *peer) notes(source string, args []string, reply any) {
	if p.server.lost == nil || len(args) < 2 {
		return
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 0 || n > len(args)-2 {
		return
	}
	if lost := lossesIn(source, args[2:2+n], args[2+n:], reply); len(lost) > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.losses = append(p.losses, lost...)
	}
}

// tells has the losses that p was told be known to be told when its client has read all that it was
// answered, and has asked nothing more: the client library hands out the answers of a pipeline
// together.
func (p *peer) tells() {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, simulated := p.conn.(*conn)
	if len(p.losses) == 0 || !simulated || !c.in.isEmpty() {
		return
	}
	lost := p.losses
	p.losses = nil
	w := c.link.way
	w.net.mu.Lock()
	for i := range lost {
		lost[i].sent, lost[i].began = c.link.written, c.link.began()
	}
	w.net.mu.Unlock()
	client, tell := p.name, p.server.lost
	c.out.whenRead(func() { tell(client, lost) })
}

// scheduling is what those who wait for an answer may take to act upon it. A slow hook of another
// hold may come first, and of each that is renewed together with the one that is lost.
func (r *register) scheduling(client int) time.Duration {
	d := 2 * hookTime
	if r.w.plan.Clients[client].Hooks == "slow" {
		for _, b := range r.beliefs {
			if b.client == client && b.live() {
				d += hookTime
			}
		}
	}
	return d
}

// answers is for how long an answer is waited for at least.
const answers = 200 * time.Millisecond

// lost takes what a client has been told of holds that are lost.
func (r *register) lost(client string, all []loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.w.plan.Backend == "quorum" || r.w.indexOf(client) < 0 {
		return
	}
	for _, l := range all {
		c := r.w.ownerOf(l.id) // others may share its connection
		if c < 0 || r.dead[c] || !r.awaits(c, l) {
			continue
		}
		r.coverage["a loss told × "+l.by]++
		var on []*belief
		for _, b := range r.beliefs {
			if b.client == c && b.name == l.name && r.isOn(b, l.id) && !(l.one && b.downFrom) && (l.by != "renew" || r.isRenewedBy(b, l)) {
				on = append(on, b)
			}
		}
		r.note(c, "told by %s that %s is lost: %d leases", l.by, l.name, len(on))
		if len(on) > 0 {
			time.AfterFunc(r.scheduling(c), func() { r.over(on, l, now) })
		}
	}
}

// over checks that all leases on a hold are over since its loss was told.
func (r *register) over(on []*belief, l loss, told time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range on {
		if l.by == "renew" && r.renewalsHeldUpSince(b.client, told) {
			continue
		}
		if !r.stood(b.client, told) && !b.gone && b.lease.Err() == nil && !r.dead[b.client] && !r.stuttered(told) {
			r.violate("a loss that is told ends all", "%v is alive %v after %s was told that it is lost", b, time.Since(told), l.by)
		}
	}
}

// awaits reports whether a client certainly still waits for what it was told: it gives an answer up
// after some time, and with the context of who has asked.
func (r *register) awaits(client int, l loss) bool {
	if l.by == "renew" {
		return !r.w.plan.Acks || r.w.plan.Clients[client].Careless // else it counts with the word of the replica
	}
	for c := range r.calls {
		if c.client == client && slices.Contains(c.names, l.name) && c.hasNoTime(l.name) {
			return false
		}
	}
	return time.Since(l.sent) < answers && r.gaveUp[party{client, l.name}].Before(l.sent.Add(-lingers))
}

// isRenewedBy reports whether a renewal was answered before it is given up: it has half of what is
// left of the lease, in which a connection may have to be made first.
func (r *register) isRenewedBy(b *belief, l loss) bool {
	return b.lease.Err() != nil || time.Since(r.renewalBegan(b, l)) < time.Until(b.lease.Until())/2
}

// fresh is for how long after a connection was made what is asked on it may be what that was made for:
// it logs in first, and a script that the server does not know is sent once more.
const fresh = time.Second

// began is since when what was last asked on l may have waited for that. It is called with the mutex of
// the network held.
func (l *link) began() time.Time {
	if time.Since(l.dialed[1]) < fresh {
		return l.dialed[0]
	}
	return l.written
}

// hasNoTime reports whether a call may wait for its answer no longer. The loss of the lock that it is
// about is no reason for that: it may be what was told.
func (c *call) hasNoTime(name string) bool {
	var e *dlock.Error
	told := errors.As(context.Cause(c.ctx), &e) && e.Kind == dlock.ErrLost && e.Name == name
	return c.ctx.Err() != nil && (!told || c.within.isAcross(c.client)) || !c.patient.IsZero() && !time.Now().Before(c.patient)
}

// givesUp notes that a call which asks about a hold may have gone before its answer. One whose hook panics leaves
// the queue as one does that has failed: its place is given back after it.
func (r *register) givesUp(c *call, err error) {
	for _, n := range c.names {
		if err == nil || !c.hasNoTime(n) && !errors.Is(err, dlock.ErrUnavailable) && err != errPanicked {
			continue
		}
		r.gaveUp[party{c.client, n}] = time.Now()
	}
}

// grants notes under which tokens a server has granted a lock to whom.
func (l *lockLog) grants(t truth) {
	for _, id := range t.holders() {
		if _, known := l.tokenOf[id]; !known {
			l.tokenOf[id] = uint64(t.token)
		}
	}
}

// isOn reports whether a lease is certainly on the hold with that id: one that was passed on within
// its client has a token that no server has granted.
func (r *register) isOn(b *belief, id string) bool {
	tokens := r.lock(b.name).tokenOf
	if token, known := tokens[id]; !known || token != b.token {
		return false
	}
	for other, token := range tokens {
		if other != id && token == b.token && clientOf(other) == clientOf(id) {
			return false
		}
	}
	return true
}

// tellsOuter checks that leases that a call was made under are over, if it says that their lock is
// lost: every call on a lease says so from then on. The loss of another lock may have ended its context.
func (r *register) tellsOuter(c *call, o *owner, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e, cause *dlock.Error
	if !errors.As(err, &e) || e.Kind != dlock.ErrLost || len(c.names) != 1 || errors.As(backend.OwnersCause(e.Err), &cause) && cause.Op == "hold" && cause.Name != c.names[0] || r.stuttered(c.start) || r.dead[c.client] {
		return
	}
	if o.isAnyOverAcross(c.client) {
		return // it is the loss of another client that has ended its context
	}
	for ; o != nil; o = o.outer {
		for _, b := range o.beliefs {
			if b.client == c.client && b.name == c.names[0] && b.lease.Err() == nil && !o.outer.hasLostBefore(b) {
				r.violate("a loss that is told ends all", "c%d %s %v: %v; %v is alive", c.client, c.what, c.names, err, b)
			}
		}
	}
}

// hasLostBefore reports whether an outer lease on the lock of b had been lost before that was taken, and not
// entered, with a context of a program's own that goes on. What is done under b is told of that loss.
func (o *owner) hasLostBefore(b *belief) bool {
	for ; o != nil; o = o.outer {
		for _, a := range o.beliefs {
			if a.client == b.client && a.name == b.name && b.parent == nil && errors.Is(a.lease.Err(), dlock.ErrLost) {
				return true
			}
		}
	}
	return false
}
