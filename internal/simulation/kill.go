package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// successors has the processes of some clients be killed, and others begin in their place that
// do what those did.
func (g *generator) successors() {
	p := g.plan
	g.draw = &draw{rand.New(rand.NewPCG(p.Seed, 34))}
	if len(p.Faults) == 0 || !g.often(20) {
		return
	}
	if g.often(40) {
		p.Faults = nil
	}
	for range 1 + g.IntN(2) {
		client, at := g.IntN(len(p.Clients)), g.within(0, p.Length)
		p.Faults = append(p.Faults, Fault{Kind: "kill-client", At: at, Client: client})
		if after := at + g.within(0, p.TTL); g.often(80) && after > p.Clients[client].After {
			next := p.Clients[client]
			next.After, next.Close = after, 0
			p.Clients = append(p.Clients, next)
		}
	}
}

// succeed has a client begin that was not there before.
func (w *world) succeed(c *client, party Party) {
	_ = sleep(w.over, party.After)
	if party.Opens != nil && w.opens(c, party.Opens) {
		w.works(c, party)
		return
	}
	if err := w.connect(c); err != nil {
		w.reg.mu.Lock()
		defer w.reg.mu.Unlock()
		w.reg.violate("the world opens", "%v", err)
		return
	}
	w.works(c, party)
}

// works has all goroutines of a client do what they have to.
func (w *world) works(c *client, party Party) {
	var workers group
	for _, ops := range party.Workers {
		workers.run(func() { w.work(c, ops) })
	}
	workers.wait()
}

// kill ends the process of a client: what it has sent arrives, and then the end of each of
// its connections.
func (w *world) kill(index int) {
	w.bury(index)
	for _, s := range w.nodes {
		way := w.net.way(index, s.index)
		way.change(func() { way.refuses = time.Now().Add(24 * time.Hour) })
		w.net.mu.Lock()
		links := way.open()
		w.net.mu.Unlock()
		for _, l := range links {
			_ = l.client.Close()
		}
	}
	go w.forgets(index)
}

// alive is for how long a place in the queue lasts that nobody asks after: three times the
// interval of slow questions.
const alive = 15 * time.Second

// forgotten is within what time a server has nothing any more of a client that was killed: a
// lease ends, and so does a place in the queue, or what was granted to that last.
func (p *Plan) forgotten() time.Duration {
	return max(p.longestHold(), alive+grantTime) + 2*time.Second
}

// forgets checks that a server has nothing of a client that was killed some time ago, where
// nothing else has kept it from hearing of that.
func (w *world) forgets(index int) {
	died := time.Now()
	if sleep(w.over, w.plan.forgotten()) != nil {
		return
	}
	for _, name := range w.names() {
		for _, s := range w.keepers(name) {
			s.mu.Lock()
			s.data.now = s.clock().UnixMilli()
			t := s.read(name).asOf(s.data.now)
			t.queue = slices.DeleteFunc(t.queue, func(id string) bool { return !s.waits(name, id) })
			s.mu.Unlock()
			w.reg.forgotten(index, died, s, name, t)
		}
	}
}

// waits reports whether a place in a queue has not run out. One that has is taken away by whoever
// changes the lock next: a holder that renews, or a lock that nobody wants, leave it.
func (s *server) waits(name, id string) bool {
	v := s.data.get(lockKey(name) + ":a")
	if v == nil {
		return false
	}
	i := v.index(id)
	return i >= 0 && int64(v.set[i].score) > s.data.now
}

func (r *register) forgotten(index int, died time.Time, s *server, name string, t truth) {
	r.mu.Lock()
	defer r.mu.Unlock()
	others := slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind != "kill-client" && (t.kind == "clock-back" || t.to.After(died.Add(-lingers)))
	})
	for _, id := range append(t.holders(), t.queue...) {
		if s.owner(id) == r.w.label(index) && !others {
			r.violate("nothing is left of who was killed", "%s has %s of c%d, which was killed %v ago", name, id[:8], index, time.Since(died))
		}
	}
}
