package simulation

import (
	"slices"
	"strings"
	"time"
)

// Who waits asks for a place in the queue, is told when it has the lock, and asks meanwhile how it stands: of
// one server a lone waiter every five seconds, where no lease is shorter. It asks once more if the end of a
// lease may have been the end of a hold, or if a server says that it is the first.

// asksAgain is how often who waits asks how it stands. A grant may have some ms less left than that.
const asksAgain = 4800 * time.Millisecond

// grabber is how the script begins that can do no more than take a lock.
const grabber = "-- Takes locks for exclusive holds"

// An awaiting is what was known as a call began that may have to wait.
type awaiting struct {
	grabs   int  // scripts that only take the lock, which its client had run
	hints   int  // messages that had told its client that it is the first
	ending  int  // holds that were about to end by themselves
	has     bool // its client had a lease on the lock
	listens bool // its client listened, and knew that
}

// waitsFor notes how a call begins that may have to wait.
func (r *register) waitsFor(c *call) awaiting {
	at := party{c.client, c.names[0]}
	since, listens := r.listens[r.listener(at)]
	return awaiting{
		grabs: r.grabs[at], hints: r.hints[c.client], ending: r.ending[at.name], has: r.hasLease(at),
		listens: listens && time.Since(since) > 10*r.w.plan.trip(),
	}
}

// listener is who listens so that a client hears of a lock: the client, or in a cluster the client for that lock.
func (r *register) listener(p party) party {
	if !r.w.plan.Cluster {
		p.name = ""
	}
	return p
}

// changesHands notes who has come to hold a lock that it had queued for, and which holds are about to end.
func (r *register) changesHands(s *server, name string, old, t truth) {
	soon := s.clock().Add(asksAgain).UnixMilli()
	for _, id := range t.holders() {
		if end, reads := t.readers[id]; reads && end < soon || !reads && t.expiry < soon {
			r.ending[name]++
		}
		i := r.w.indexOf(s.owner(id))
		if i < 0 || had(old, id) {
			continue
		}
		p := party{i, name}
		if slices.Contains(old.queue, id) && !r.isLetIn(p) {
			r.letIn[p] = time.Now()
			r.ranOut[p] = s.asker == s.owner(id) || old.held() && !old.asOf(s.clock().UnixMilli()).held()
		}
		r.hearsWanted(s, p, id, old.queue)
	}
}

// isLetIn reports whether a client that waits for a lock on a quorum has been let in by a member.
func (r *register) isLetIn(p party) bool {
	in, found := r.letIn[p]
	if !found || r.w.plan.Backend != "quorum" {
		return false
	}
	for c := range r.calls {
		if c.client == p.client && c.start.Before(in) && slices.Contains(c.names, p.name) {
			return true
		}
	}
	return false
}

// publishes takes a message of a server.
func (r *register) publishes(s *server, topic, text string) {
	if !strings.HasPrefix(text, "poll ") {
		return
	}
	name, _ := s.owners.Load(topic[strings.LastIndexByte(topic, ':')+1:])
	client, _ := name.(string)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hints[r.w.indexOf(client)]++
}

// tells takes a message of a server.
func (s *server) tells(topic, text string) {
	if s.world != nil {
		s.world.reg.publishes(s, topic, text)
	}
}

// countsWaits checks what a call has cost that has waited for one lock until it was told that it has it.
func (r *register) countsWaits(c *call, p *passage, err error) {
	plan, at := r.w.plan, party{c.client, c.names[0]}
	in := r.letIn[at]
	told := err == nil && c.waits && len(c.names) == 1 && c.what != "lead" && in.After(c.start)
	if !told || plan.Acks || !plan.listens(c.client) || p.crowded || p.waits.has || c.hurried || !r.isUntroubled(c) {
		return
	}
	if r.unsettled[at].After(c.start.Add(-300*time.Millisecond - 20*plan.trip())) {
		return // what a call before has left is given back meanwhile
	}
	r.coverage["in order × wait"]++
	if plan.Backend == "quorum" {
		r.countsHandOver(c, in)
		return
	}
	took, trip := time.Since(c.start), plan.trip()
	n := p.asks(r, at) - (r.grabs[at] - p.waits.grabs)
	most := 1 + r.hints[c.client] - p.waits.hints + int(took/asksAgain)
	if took > asksAgain {
		most++
	}
	if !p.waits.listens {
		most++ // it asks whether it has to wait before it listens
	}
	if r.ranOut[at] {
		most++ // when that ends it asks
	}
	if most += r.ending[at.name] - p.waits.ending; n > most && r.least >= 2*asksAgain {
		r.violate("requests are exact", "c%d %s %v has asked %d times in %v, and may %d times", c.client, c.what, c.names, n, took, most)
	}
	may := trip / 2
	if plan.isFast() { // by the clocks the word came before it was sent, and has to be confirmed
		may += trip
	}
	if took := time.Since(later(in, r.lastAsked[at])); c.plain && plan.Jitter == 0 && took > may+trip/4 {
		r.violate("trips are few", "c%d %s %v has known for %v, or %.1f round trips, that it has the lock", c.client, c.what, c.names, took, float64(took)/float64(trip))
	}
}

// isFast reports whether the clock of a server goes faster than those of clients.
func (p *Plan) isFast() bool {
	return p.Drift > 0 || slices.ContainsFunc(p.Drifts, func(d float64) bool { return d > 0 })
}
