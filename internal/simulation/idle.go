package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// What is on the way to a server, as a load balancer or a firewall, may forget a connection on which
// nothing has been sent for minutes, and tell nobody: what is sent there is lost from then on.

func init() {
	furtherKinds["forgotten"] = touch{fails: true}
	kinds["forgotten"] = furtherKinds["forgotten"]
	local = append(local, "forgotten")
}

// maxIdle is after what time a client that Open has made uses a connection no more.
const maxIdle = 3 * time.Minute

// idleness has something on the way forget connections, in a part of the plans that are long enough:
// mostly later than clients of Open need them, as large clouds do.
func (g *generator) idleness() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 77))}
	p := g.plan
	if !p.isLonger() || p.Backend == "memory" || !g.often(40) {
		return
	}
	p.Forgets = pick(g.draw, g.within(maxIdle, maxIdle+time.Minute), g.within(maxIdle, 2*maxIdle), g.within(maxIdle/4, maxIdle))
}

// isForgotten reports whether l has been idle for so long that what is on the way has forgotten it.
// It is called with the mutex of the network, as something is sent.
func (l *link) isForgotten(now time.Time) bool {
	limit := l.way.net.forgets
	if limit == 0 || l.quick || l.way.pair.server < 0 || // a Sentinel
		l.lost[up] && l.lost[down] {
		return false
	}
	return now.Sub(later(later(l.written, l.replied), l.dialed[1])) > limit
}

// notices is for what is sent on a connection that is forgotten. Its end, which may come long before on either side, is
// heard by nobody.
func (l *link) notices() {
	l.unnoticed = false
	subscribed := l.subscribed
	outside(func() { go l.way.net.forgot(l.way.pair, subscribed) })
}

// forgot notes that a client sends something on a connection that nobody knows any more. A request
// there is late. One that Open has made makes none, unless what is on the way forgets sooner. A
// subscription is looked after while somebody waits, and may be mute when the next one does.
func (r *register) forgot(p pair, subscribed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.client < 0 || p.client >= len(r.w.plan.Clients) {
		return
	}
	r.coverage["forgotten × free"]++
	r.note(-2, "a connection of c%d to s%d is forgotten", p.client, p.server)
	r.holdsUpNames(p.client)
	now, place := time.Now(), r.w.placeOf(p.server)
	switch {
	case subscribed:
		r.adds(touched{kind: "mute", client: p.client, server: place, from: now, to: now.Add(noticed)})
		return
	case r.w.plan.Clients[p.client].Own == nil && r.w.plan.Forgets >= maxIdle:
		return
	}
	r.adds(touched{kind: r.forgets(p.client, place), client: p.client, server: place, from: now, to: now.Add(readTimeout)})
}

// forgets is the kind of what befalls a client that has lost one connection more to a place: where it may have
// no more than those that it waits at, it is as if the program had all of them in use.
func (r *register) forgets(client, place int) string {
	waits := 1
	for _, t := range r.touches {
		if t.client == client && t.server == place && (t.kind == "forgotten" || t.kind == "pool") && t.to.After(time.Now()) {
			waits++
		}
	}
	if own := r.w.plan.Clients[client].Own; own != nil && own.PoolSize > 0 && waits >= own.PoolSize {
		return "pool"
	}
	return "forgotten"
}

// answerOfOpened is for how long a client that Open has made waits for an answer.
const answerOfOpened = 2 * time.Second

// holdsUpNames gives a Names of a client on a cluster the time of another forgotten connection. It asks
// one node after the other, and has 3 s for each: time for two such it has anyway.
func (r *register) holdsUpNames(client int) {
	if !r.w.plan.Cluster {
		return
	}
	for c := range r.calls {
		if c.client != client || c.what != "names" {
			continue
		}
		if c.forgotten++; c.forgotten > 2 {
			c.bound = c.bound.Add(answerOfOpened)
		}
	}
}

// placeOf is the place of a server: its shard in a cluster, or that which it is the master of.
func (w *world) placeOf(index int) int {
	if w.layout != nil {
		return w.nodes[index].node.shard
	}
	return max(slices.Index(w.masters(), w.nodes[index]), 0)
}
