package simulation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// shelfKinds are the faults that servers in memory can have.
var shelfKinds = []string{"pause", "hole", "hole", "delay", "reset", "cut", "unanswered", "flush", "restart-empty"}

// shelved has a part of the plans in memory be of a quorum over several servers there, each of which
// may give trouble.
func (g *generator) shelved() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 79))}
	p := g.plan
	if p.Backend != "memory" || !g.often(40) {
		return
	}
	p.Backend, p.Shelves, p.Servers, p.Most = "quorum", true, pick(g.draw, 3, 3, 3, 5), 0
	if g.often(15) {
		p.Need = p.Servers
		if p.Servers == 5 && g.often(50) {
			p.Need = 4
		}
	}
	if g.often(60) {
		p.MaxTTL, p.Skew = 5*p.TTL/2, g.within(100*time.Millisecond, time.Second)
		for range p.Servers {
			p.Skews = append(p.Skews, g.within(-p.Skew/2, p.Skew/2))
		}
	}
	if g.often(80) {
		g.shelfFaults()
		if p.Need == 0 && g.often(40) {
			g.bare()
		}
	}
	forgets := pick(g.draw, "flush", "restart-empty")
	g.questions()
	for i := range p.Faults {
		switch f := &p.Faults[i]; {
		case slices.Contains(shelfKinds, f.Kind):
		case strings.HasPrefix(f.Kind, "restart"): // a server in memory has nothing when it starts
			f.Kind, f.Size = forgets, 0
		default: // a connection of several is none here
			f.Kind = "hole"
		}
	}
}

// shelfFaults draws what goes wrong: in half of the plans at as many servers as a hold can do without.
func (g *generator) shelfFaults() {
	p := g.plan
	places := g.Perm(p.Servers)
	if g.often(50) {
		places = places[:max(p.spare(), 1)]
	}
	some := slices.DeleteFunc(slices.Clone(shelfKinds), func(string) bool { return g.often(50) })
	some = append(some, pick(g.draw, shelfKinds...))
	for range 1 + g.IntN(8) {
		f := Fault{Kind: pick(g.draw, some...), At: g.within(0, p.Length), For: g.lasting(), Client: -1, Server: pick(g.draw, places...), Way: 2}
		if g.often(70) {
			f.Client = g.IntN(len(p.Clients))
		}
		switch f.Kind {
		case "pause", "flush", "restart-empty":
			f.Client = -1
		case "delay":
			f.Size = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, 2*p.TTL))
		case "unanswered":
			f.Size = time.Duration(1 + g.IntN(20))
		}
		p.Faults = append(p.Faults, f)
	}
}

// isNotReady reports whether a server does not vote yet.
func isNotReady(err error) bool {
	var not *backend.NotReadyError
	return errors.As(err, &not)
}
