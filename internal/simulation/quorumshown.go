package simulation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// What a quorum says of a lock is what a majority of its members say, each at some moment of the
// call. One that does not answer could make up the number.

// enough is how many members a hold takes.
func (r *register) enough() int { return r.w.plan.need() }

// Those of one client and label are taken for parts of the same hold, or of the same place in a queue.
type labelled struct{ client, label string }

// alike are those of some ids that are of the label.
func (l labelled) alike(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !isLabelled(id, l.label) })
}

// shownByQuorum checks what Inspect says on a quorum.
func (r *register) shownByQuorum(c *call, s dlock.Snapshot) {
	if r.w.plan.Need > 0 || r.stuttered(c.start) || r.steps(c.start) || r.dead[c.client] {
		return // or each member may have a token of its own: see showsBeliever
	}
	all := r.witnesses(c, c.names[0])
	untrue := func(format string, args ...any) {
		r.violate("a quorum is asked truly", "c%d inspect %v, "+format+": %+v", append(append([]any{c.client, c.names}, args...), s)...)
	}
	shown, same := make(map[string]int), make(map[labelled]int)
	for _, h := range s.Holders {
		shown[h.Client]++
		same[labelled{h.Client, h.Label}]++
		if why := r.deniesHolder(c, all, h, s); why != "" {
			untrue("%s", why)
		}
	}
	for l, n := range same {
		if n > r.mostShown(all, l.client, func(p span) []string { return l.alike(p.holders()) }) {
			untrue("%s has fewer holds with the label %q", l.client, l.label)
		}
	}
	for _, client := range clientsIn(all) {
		if shown[client] == 0 && !isSplit(all, client) && r.hadAllTheTime(all, client) {
			untrue("%s had it all the time", client)
		}
	}
	if len(s.Holders) == 0 && time.Since(c.start) < lookTime && r.isLookedAtOnce(all) {
		untrue("it was not free at a member")
	}
	r.waitersShown(c, s, all, untrue)
}

// deniesHolder says why a holder is not what the members had, or nothing.
func (r *register) deniesHolder(c *call, all []witness, h backend.Party, s dlock.Snapshot) string {
	var parts []witness
	for _, w := range all {
		if w.ever(of(h.Client)) {
			parts = append(parts, w)
		}
	}
	silent := count(all, func(w witness) bool { return w.silent })
	is := func(f func(span, string) bool) int {
		return count(all, func(w witness) bool { return w.silent || w.ever(f) })
	}
	mine := of(h.Client)
	token := func(p span, id string) bool { return mine(p, id) && p.tokenOf(id) == h.Token }
	mode := func(p span, id string) bool { return mine(p, id) && (id == p.holder) == (h.Mode == backend.Exclusive) }
	switch {
	case len(parts) == 0, is(mine) < r.enough():
		return "which too few had"
	case h.Token != 0 && (is(token) < r.enough() || count(all, func(w witness) bool { return w.ever(token) }) == 0):
		return "which too few knew by that token"
	case count(all, func(w witness) bool { return w.ever(mode) }) == 0 && !r.wentOn(c.start):
		return "which nobody had in that mode"
	case h.Since.After(r.latest().Add(slack)):
		return "which begins later"
	case h.Token == 0 && silent == 0 && r.isKnown(all, h.Client):
		return "which has a token"
	}
	return r.deniesLeft(all, h, silent)
}

// hadAllTheTime reports whether enough members had a hold of a client all the time, with one label: what
// differs in that is of two holds.
func (r *register) hadAllTheTime(all []witness, client string) bool {
	if r.comesInParts(all) {
		return false
	}
	for _, w := range all {
		for _, first := range w.spans[0].holders() {
			label := labelOf(first)
			same := func(p span, id string) bool { return of(client)(p, id) && labelOf(id) == label }
			if count(all, func(w witness) bool { return w.always(same) }) >= r.enough() {
				return true
			}
		}
	}
	return false
}

// isSplit reports whether a client has had a hold at a member where it waits too: what it has there is left
// of another hold than what it has elsewhere.
func isSplit(all []witness, client string) bool {
	return count(all, func(w witness) bool {
		return slices.ContainsFunc(w.spans, func(p span) bool {
			return countOf(p.queue, client) > 0 && countOf(p.holders(), client) > 0
		})
	}) > 0
}

// isKnown reports whether a majority knew the one hold of a client by one token all the time.
func (r *register) isKnown(all []witness, client string) bool {
	if greatest(all, func(p span) int { return countOf(p.holders(), client) }) > 1 {
		return false
	}
	for _, w := range all {
		for _, id := range w.spans[0].holders() {
			token := w.spans[0].tokenOf(id)
			same := func(p span, id string) bool { return of(client)(p, id) && p.tokenOf(id) == token }
			if token != 0 && count(all, func(w witness) bool { return w.always(same) }) >= r.enough() {
				return true
			}
		}
	}
	return false
}

// wentOn reports whether a server in memory that was stopped has gone on since: it does at one moment what it
// was asked meanwhile, such as a downgrade and an unlock, and is seen before and after that.
func (r *register) wentOn(since time.Time) bool {
	return r.w.plan.Shelves && slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind == "pause" && !t.to.Before(since)
	})
}

// deniesLeft says why a hold does not last for so long, or nothing. Of several holds of its client with its
// label nobody can say which it is.
func (r *register) deniesLeft(all []witness, h backend.Party, silent int) string {
	var longest, shortest []time.Duration // at each member that had it, and at each that had it all the time
	labelled := func(p span, id string) bool { return of(h.Client)(p, id) && isLabelled(id, h.Label) }
	alone := true
	for _, w := range all {
		long, short := time.Duration(-1), time.Duration(1<<62)
		for _, p := range w.spans {
			several := 0
			for _, id := range p.holders() {
				if clientOf(id) != h.Client {
					continue
				}
				end := p.endOf(id)
				long = max(long, end.Sub(p.from))
				if labelled(p, id) {
					several++
					short = min(short, end.Sub(p.to))
				}
			}
			alone = alone && several <= 1
		}
		if long >= 0 {
			longest = append(longest, long)
		}
		if w.always(labelled) {
			shortest = append(shortest, short)
		}
	}
	inexact := slack + h.Left/1000 // clocks drift
	descending := func(a, b time.Duration) int { return cmp.Compare(b, a) }
	slices.SortFunc(longest, descending)
	slices.SortFunc(shortest, descending)
	if n := max(r.enough()-silent, 1); len(longest) >= n && h.Left > longest[n-1]+inexact {
		return "which ends sooner"
	}
	if n := r.enough(); alone && silent == 0 && len(shortest) >= n && h.Left < shortest[n-1]-inexact {
		return "which lasts longer"
	}
	return ""
}

// latest is what the clock of a member says at the most.
func (r *register) latest() (at time.Time) {
	for _, s := range r.members() {
		at = later(at, s.clock())
	}
	return at
}

// lookTime is for how long Inspect looks again at a lock that changes hands.
const lookTime = time.Second / 2

// isLookedAtOnce reports whether a member was held all the time, and by nobody for as long as it takes
// to ask twice: who sees different holders at the members asks again.
func (r *register) isLookedAtOnce(all []witness) bool {
	return slices.ContainsFunc(all, func(w witness) bool {
		if w.silent || !w.always(anyHold) {
			return false
		}
		since, last := time.Time{}, ""
		for _, p := range w.spans {
			holders := p.asOf(p.server.clock().UnixMilli()).holders()
			slices.Sort(holders)
			if now := strings.Join(holders, " "); now != last || since.IsZero() {
				since, last = p.from, now
			}
			if p.to.Sub(since) >= 2*r.w.plan.nearest() {
				return false
			}
		}
		return true
	})
}

// everQueued are the ids by which members have had a client in their queues.
func everQueued(all []witness, client string) (ids []string) {
	for _, w := range all {
		for _, p := range w.spans {
			ids = union(ids, slices.DeleteFunc(slices.Clone(p.queue), func(id string) bool { return clientOf(id) != client }))
		}
	}
	return ids
}

// waitersShown checks who waits.
func (r *register) waitersShown(c *call, s dlock.Snapshot, all []witness, untrue func(string, ...any)) {
	shown, same := make(map[string]int), make(map[labelled]int)
	for _, p := range s.Waiters {
		shown[p.Client]++
		same[labelled{p.Client, p.Label}]++
	}
	for l, n := range same {
		queued := greatest(all, func(p span) int { return countOf(l.alike(p.queue), l.client) })
		most := r.mostShown(all, l.client, func(p span) []string { return l.alike(append(p.holders(), p.queue...)) })
		if !r.calm(c.start) { // a member may have a place that was given up while it could not be asked
			most = max(most, len(l.alike(everQueued(all, l.client))))
		}
		if queued == 0 || n > most {
			untrue("%s does not wait", l.client)
		}
	}
	for _, w := range all {
		if w.silent {
			continue
		}
		for _, id := range w.spans[0].queue {
			client := clientOf(id)
			holds := greatest(all, func(p span) int { return countLike(p.holders(), id) })
			waits := !slices.ContainsFunc(w.spans, func(p span) bool {
				return !slices.Contains(p.queue, id) || countLike(p.lasting(), id) < holds
			})
			if waits && shown[client] == 0 && r.asksAfter(w.spans[0].server, id) {
				untrue("%s waits all the time", client)
			}
		}
	}
}

// asksAfter reports whether who waits for a lock at a server is there, and so has its place renewed.
func (r *register) asksAfter(s *server, id string) bool {
	client := r.w.indexOf(s.owner(id))
	return client >= 0 && !r.dead[client] && !r.closing[client] && !slices.ContainsFunc(r.touches, func(t touched) bool {
		mine, harmless := t.client < 0 || t.client == client, t.kind == "break" || t.kind == "mute" || t.kind == "deaf"
		here := t.concerns(s) || t.kind == "die" || t.kind == "kill-client"
		return mine && here && !harmless && t.to.After(time.Now().Add(-2*alive))
	})
}

func countOf(ids []string, client string) (n int) {
	for _, id := range ids {
		if clientOf(id) == client {
			n++
		}
	}
	return n
}

// countLike is how many ids are of the client and the label of one: who holds at some members may still wait at
// others, and that is how parts of one hold are known.
func countLike(ids []string, id string) (n int) {
	for _, other := range ids {
		if clientOf(other) == clientOf(id) && labelOf(other) == labelOf(id) {
			n++
		}
	}
	return n
}

// greatest is the most of what a member says of any moment.
func greatest(all []witness, f func(span) int) (n int) {
	for _, w := range all {
		for _, p := range w.spans {
			n = max(n, f(p))
		}
	}
	return n
}

// clientsIn are those that had a lock at any member.
func clientsIn(all []witness) (clients []string) {
	for _, w := range all {
		for _, p := range w.spans {
			for _, id := range p.holders() {
				if client := clientOf(id); !slices.Contains(clients, client) {
					clients = append(clients, client)
				}
			}
		}
	}
	return clients
}

// listedByQuorum checks what Names says on a quorum.
func (r *register) listedByQuorum(c *call, begin string, names []string) {
	if r.w.plan.Need > 0 || r.stuttered(c.start) || r.steps(c.start) || r.dead[c.client] {
		return
	}
	for _, name := range r.w.names() {
		if !r.listable(c, name, begin) {
			continue
		}
		all := r.witnesses(c, name)
		had := func(w witness) bool {
			return w.ever(anyHold) || slices.ContainsFunc(w.spans, func(p span) bool { return len(p.queue) > 0 })
		}
		some := count(all, had) > 0 && count(all, func(w witness) bool { return w.silent || had(w) }) >= r.enough()
		always := count(all, func(w witness) bool { return w.always(anyHold) }) >= r.enough()
		if named := slices.Contains(names, name); named && !some || !named && always {
			r.violate("a quorum is asked truly", "c%d names: %v, and %s", c.client, names, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(r.w.names(), name) && !strings.HasPrefix(name, "dlock doctor ") {
			r.violate("a quorum is asked truly", "c%d names: %q", c.client, name)
		}
	}
}
