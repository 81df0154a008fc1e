package simulation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// everywhere is the server of a fault that concerns the ways of a client to all servers at once: the
// network of a machine fails, and not that of a server. It touches this client alone, as anything
// else that names a client does: the others find what it has left behind, for as long as that lasts.
const everywhere = -1

// networks are the kinds of fault that may concern all servers at once.
var networks = []string{
	"cut", "hole", "hole-reset", "half-open", "delay", "slow", "reset",
	"kill-requests", "kill-one", "kill-subscription",
}

// partitions cuts clients off from all servers, where these are several, alone or in groups. In half
// of such plans nothing else goes wrong.
func (g *generator) partitions() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 57))}
	p := g.plan
	if len(p.Faults) == 0 || p.Servers == 1 && !p.Sentinels && !p.Cluster || !g.often(25) {
		return
	}
	if g.often(50) {
		p.Faults = nil
	}
	for range 1 + g.IntN(4) {
		group := g.Perm(len(p.Clients))[:1]
		if g.often(30) {
			group = g.Perm(len(p.Clients))[:1+g.IntN(len(p.Clients))]
		}
		f := Fault{Kind: pick(g.draw, networks...), At: g.within(0, p.Length), For: g.lasting(), Server: everywhere, Way: g.IntN(3)}
		f.Size = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, 2*p.TTL))
		for _, f.Client = range group {
			p.Faults = append(p.Faults, f)
		}
	}
}

// place draws the server of a fault that exists at a single one: where one of some others is already, or
// any, if all of those are everywhere.
func (g *generator) place(others []Fault) int {
	others = slices.DeleteFunc(slices.Clone(others), func(f Fault) bool { return f.Server == everywhere })
	if len(others) == 0 {
		return g.IntN(max(g.plan.Servers, g.plan.shards()))
	}
	return pick(g.draw, others...).Server
}

// happenEverywhere has such a fault happen. A Sentinel answers at once or not at all: who cannot
// reach any server well has lost it, too.
func (w *world) happenEverywhere(f Fault, end time.Time) {
	for _, way := range w.ways(f) {
		switch {
		case strings.HasPrefix(f.Kind, "kill-"):
			for _, l := range way.chosen(f) {
				l.server.hangUp()
			}
		default:
			w.disturb(way, f, end)
		}
	}
	if !slices.Contains([]string{"cut", "hole", "hole-reset", "half-open"}, f.Kind) {
		return
	}
	for _, s := range w.sentinels {
		way := w.net.way(f.Client, -1-s.index)
		way.change(func() { way.refuses = end })
		way.reset()
	}
}

// isRefused reports whether nobody can connect.
func (w *way) isRefused() bool {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return time.Now().Before(w.refuses)
}

// isCutOff reports whether all servers have been disturbed for a client at once since then.
func (r *register) isCutOff(client int, since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.server == everywhere && (t.client < 0 || t.client == client) && t.to.After(since)
	})
}

// isAnyCutOff reports whether that is so for any client.
func (r *register) isAnyCutOff(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.server == everywhere && t.to.After(since) })
}

// isObstructed reports whether a client that was cut off has left something at a member of a quorum
// that keeps a lock from others, as long as that may last there: a part of a hold, or of a vote, for
// what it was asked for, and a place in a queue until nobody has asked after it for some time, and for a
// grant more.
func (r *register) isObstructed(l *lockLog) bool {
	since := time.Now().Add(-r.w.plan.forgotten())
	for _, t := range r.touches {
		if t.server != everywhere || t.to.Before(since) {
			continue
		}
		for _, s := range r.w.masters() {
			has := l.last[s.index].asOf(s.clock().UnixMilli())
			isOf := func(id string) bool { return t.client < 0 || s.owner(id) == r.w.label(t.client) }
			if slices.ContainsFunc(append(has.holders(), has.queue...), isOf) {
				return true
			}
		}
	}
	return false
}

// concerns reports whether a fault concerns a server, or the way to it. All have one password.
func (t touched) concerns(s *server) bool {
	return t.server == s.index || t.server == everywhere || t.kind == "rotate"
}
