package simulation

import (
	"slices"
	"strings"
	"time"
)

// A span is what a member of a quorum had of a lock for some time.
type span struct {
	truth
	server   *server
	from, to time.Time
}

// slack is by how much it may not be known when a lease ends at a server: it counts in ms.
const slack = moment * time.Millisecond

// holds reports whether such a hold was alive at some moment of p, and whether it was at all.
func (p span) holds(is func(p span, id string) bool) (ever, always bool) {
	for _, id := range p.holders() {
		if is(p, id) {
			end := p.endOf(id)
			ever = ever || end.Add(slack).After(p.from)
			always = always || !end.Add(-slack).Before(p.to)
		}
	}
	return ever, always
}

// lasting are the ids of the holds that were alive for all of p.
func (p span) lasting() []string {
	return slices.DeleteFunc(p.holders(), func(id string) bool { return p.endOf(id).Add(-slack).Before(p.to) })
}

// endOf is when the server ends the hold of an id, if that is not renewed.
func (p span) endOf(id string) time.Time {
	if id == p.holder {
		return p.server.at(p.expiry)
	}
	return p.server.at(p.readers[id])
}

// tokenOf is the token by which the server knows the hold of an id.
func (p span) tokenOf(id string) uint64 {
	if own, found := p.own[strings.TrimSuffix(id, "!")]; found && id != p.holder {
		return uint64(own)
	}
	return uint64(p.token)
}

// A witness is what a member of a quorum had of a lock during a call.
type witness struct {
	spans  []span
	silent bool // it may not have answered whoever called
}

// ever reports whether the member had such a hold at some moment.
func (w witness) ever(is func(span, string) bool) bool {
	return slices.ContainsFunc(w.spans, func(p span) bool { e, _ := p.holds(is); return e })
}

// always reports whether the member had such a hold all the time.
func (w witness) always(is func(span, string) bool) bool {
	return !slices.ContainsFunc(w.spans, func(p span) bool { _, a := p.holds(is); return !a })
}

// anyHold is true of all holds.
func anyHold(span, string) bool { return true }

// of is true of the holds that a client has, by the id that it has in the library.
func of(client string) func(span, string) bool {
	return func(_ span, id string) bool { return clientOf(id) == client }
}

// known is true of the holds that a member knows by a token.
func known(token uint64) func(span, string) bool {
	return func(p span, id string) bool { return p.tokenOf(id) == token }
}

// witnesses are the members as they were during a call.
func (r *register) witnesses(c *call, name string) []witness {
	var all []witness
	for _, s := range r.members() {
		silent := c.ctx.Err() != nil || r.misses(c.client, s, c.start)
		all = append(all, witness{r.spans(s, name, c.start), silent})
	}
	return all
}

// count is how many members something is true of.
func count(all []witness, f func(witness) bool) (n int) {
	for _, w := range all {
		if f(w) {
			n++
		}
	}
	return n
}

// pastKept is from how many states on those are forgotten that no call can have met.
const pastKept = 64

// remember notes what a member of a quorum has of a lock from now on.
func (r *register) remember(s *server, name string, t truth) {
	if r.w.plan.Backend != "quorum" {
		return
	}
	l := r.lock(name)
	if l.pasts == nil {
		l.pasts = make(map[int][]truth)
	}
	past := l.pasts[s.index]
	if n := len(past); n > 0 && n%pastKept == 0 {
		first := time.Now()
		for c := range r.calls {
			if c.start.Before(first) {
				first = c.start
			}
		}
		for len(past) > 1 && past[1].at.Before(first) {
			past = past[1:]
		}
		past = slices.Clone(past)
	}
	l.pasts[s.index] = append(past, t)
}

// spans is what a member had of a lock from since on.
func (r *register) spans(s *server, name string, since time.Time) []span {
	now, past := time.Now(), r.lock(name).pasts[s.index]
	i := len(past)
	for i > 0 && past[i-1].at.After(since) {
		i--
	}
	all := []span{{server: s, from: since, to: now}}
	if i > 0 {
		all[0].truth = past[i-1]
	}
	for ; i < len(past); i++ {
		all[len(all)-1].to = past[i].at
		all = append(all, span{past[i], s, past[i].at, now})
	}
	return all
}

// answering are faults by which a member answers who asks it, if late: no more than a message is lost,
// or a script has to be sent again.
var answering = []string{"deaf", "mute", "flush-scripts", "break", "full", "kill-subscription",
	"late-subscription", "clock-back", "clock-on"}

// answerMargin is by how much an answer is late that is not waited for.
const answerMargin = 50 * time.Millisecond

// waited is for how long a member is waited for at most that answers pings: less than a first answer.
const waited = firstAnswer - 100*time.Millisecond

// misses reports whether a member may not have answered a client since then: something has gone wrong
// between them, or the client has asked nothing before. Who was silent, and has been asked for nothing since,
// is waited for no longer than it takes the others to answer.
func (r *register) misses(client int, s *server, since time.Time) bool {
	first, found := r.served[client]
	if !found || first.After(since.Add(-time.Second)) || 2*tail*r.w.plan.Jitter > answerMargin || r.isLimited(client) {
		return true
	}
	return r.isSilentTo(client, s, since)
}

// isSilentTo reports whether something has gone wrong between a member and a client since then, so that it may
// have done what it was asked for without the client's hearing of that.
func (r *register) isSilentTo(client int, s *server, since time.Time) bool {
	stalled := 0
	fails := slices.ContainsFunc(r.touches, func(t touched) bool {
		mine := t.client < 0 || t.client == client
		if !mine || !t.concerns(s) || !t.to.After(since.Add(-lingers)) && r.beganBetween(client, t.to, since) || slices.Contains(answering, t.kind) {
			return false
		}
		if t.kind == "stall-one" { // it answers pings on another connection, and is waited for
			stalled++
			return false
		}
		return true
	})
	return fails || stalled > 1 || stalled > 0 && time.Since(since) > waited
}

// beganBetween reports whether a client has begun a call after one time, and a second before the other: who was
// silent was asked then whether it is there.
func (r *register) beganBetween(client int, after, before time.Time) bool {
	return slices.ContainsFunc(r.works[client], func(w work) bool {
		return w.at.After(after) && w.at.Before(before.Add(-time.Second))
	})
}

// steps reports whether a clock was set since then, so that nobody knows when leases ended before.
func (r *register) steps(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return (t.kind == "clock-back" || t.kind == "clock-on" || t.kind == "suspend" || t.kind == wallOn) && !t.from.Before(since)
	})
}
