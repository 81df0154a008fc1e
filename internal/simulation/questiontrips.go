package simulation

import (
	"slices"
	"time"
)

// A question costs as many requests and round trips as the documentation says, where nothing goes wrong
// and its client has nothing else to do.

// A commanding is what kind of command a client has sent to which server.
type commanding struct {
	flight
	cmd string
}

// inspector is how the script begins that says who has a lock.
const inspector = "-- Says who holds a lock and who waits for it"

// hears takes a command of a client on a connection without subscriptions. It is called with s.mu held.
func (s *server) hears(p *peer, cmd string) {
	if s.world != nil && (cmd == "PING" && len(p.channels) == 0 || cmd == "SCAN") {
		s.world.reg.heard(s, p.name, cmd)
	}
}

func (r *register) heard(s *server, client, cmd string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.w.indexOf(client); i >= 0 {
		r.commands[commanding{flight{i, s.index}, cmd}]++
	}
}

// mayHearOfLeft reports whether a question of a client had ended without its answer so shortly before a call began
// that what it has sent may come to a server meanwhile, and be answered on the one connection that there is.
func (r *register) mayHearOfLeft(client int, began time.Time) bool {
	return r.leftUntold[client].After(began.Add(-2 * r.w.plan.slowest()))
}

// countsAnswers checks what a question has cost that has been answered. With small limits an answer has parts.
func (r *register) countsAnswers(c *call, p *passage, err error) {
	if _, found := r.toldOf[c.client]; c.asks && err == nil && !found {
		r.toldOf[c.client] = time.Now()
	}
	mayHear := r.mayHearOfLeft(c.client, c.start)
	if c.asks && err != nil {
		r.leftUntold[c.client] = time.Now()
	}
	if !c.asks || err != nil || r.w.plan.Small || mayHear || p.crowded || c.ctx.Err() != nil || !r.isUntroubled(c) {
		return
	}
	switch c.what {
	case "inspect": // on a quorum once more where the lock changes hands
		most := 1
		if r.isPartlyHeld(c.names[0]) {
			most++
		}
		if r.w.plan.Backend != "quorum" || r.isInOrder(c, p, "refused") {
			r.countsQuestion(c, "scripts", r.mostHeard(c, p, inspector), most, most)
		}
	case "ping":
		r.countsQuestion(c, "PING", r.mostHeard(c, p, "PING"), 1, 1)
	case "names":
		pages := max(r.w.plan.Pages, 1)
		r.countsQuestion(c, "SCAN", r.mostHeard(c, p, "SCAN"), pages, r.tripsOfNames())
	}
}

// isPartlyHeld reports whether members of a quorum say that somebody has a lock, and too few that the same
// one does: it has been let in, and has not heard of that, or is giving the lock back.
func (r *register) isPartlyHeld(name string) bool {
	held, owners := false, make(map[string]int)
	for _, s := range r.w.masters() {
		here := make(map[string]bool)
		for _, id := range r.lock(name).last[s.index].asOf(s.clock().UnixMilli()).holders() {
			here[s.owner(id)], held = true, true
		}
		for owner := range here {
			owners[owner]++
		}
	}
	for _, n := range owners {
		if n >= r.w.plan.need() {
			return false
		}
	}
	return held && r.w.plan.Backend == "quorum"
}

// tripsOfNames is how many round trips Names takes: one for a page of keys, one for those of locks and
// another one for those that somebody reads or waits for, at one server after the other; a quorum is
// pinged first, and a cluster is asked who the masters are. With several pages there are pauses: 0.
func (r *register) tripsOfNames() int {
	switch p := r.w.plan; {
	case p.Pages > 1:
		return 0
	case p.Cluster:
		return 1 + 3*p.shards()
	case p.Backend == "quorum":
		return 1 + 3*p.Servers
	}
	return 3
}

// mostAsked is how many scripts about the lock of a question a server has run at most.
func (r *register) mostAsked(c *call, p *passage) (most int) {
	for i, n := range r.asked {
		if i.client == c.client && slices.Contains(c.names, i.name) {
			most = max(most, n-p.asked[i])
		}
	}
	return most
}

// mostHeard is how many of these commands a server has had at most.
func (r *register) mostHeard(c *call, p *passage, cmd string) (most int) {
	for h, n := range r.commands {
		if h.client == c.client && h.cmd == cmd {
			most = max(most, n-p.heard[h])
		}
	}
	return most
}

func (r *register) countsQuestion(c *call, what string, n, may, trips int) {
	r.coverage["in order × "+c.what]++
	if n > may {
		r.violate("requests are exact", "c%d %s %v has sent a server %d %s, and may %d", c.client, c.what, c.names, n, what, may)
	}
	trip := r.w.plan.trip()
	if len(r.w.plan.Old) > 0 {
		trips *= 2 // who does not know EVAL_RO is asked by EVAL
	}
	if took := time.Since(c.start); r.w.plan.Jitter == 0 && trips > 0 && took > time.Duration(trips)*trip+trip/4 {
		r.violate("trips are few", "c%d %s %v has taken %v, or %.1f round trips, and may take %d", c.client, c.what, c.names, took, float64(took)/float64(trip), trips)
	}
}
