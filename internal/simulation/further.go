package simulation

import (
	"maps"
	"math/rand/v2"
	"time"
)

// furtherKinds are the kinds of fault that are drawn from numbers of their own, each, after all that
// a plan has besides.
var furtherKinds = map[string]touch{
	"torn":         {fails: true},              // a connection ends in the midst of a request, or of an answer
	"overtaken":    {fails: true},              // the first of two requests about a hold that are under way at once is stuck
	"pause-writes": {loses: true, fails: true}, // CLIENT PAUSE WRITE: scripts wait, and pings are answered

	"no-replicas": {loses: true, fails: true}, // too few replicas follow a master: it refuses writes (NOREPLICAS)

	"lag":            {},                         // a replica is behind
	"replica-gone":   {},                         // a replica hears nothing, and then has a copy of all, or what it missed
	"unacknowledged": {loses: true, fails: true}, // goes with both where they are asked

	"kill-client": {loses: true, fails: true}, // its process ends, and the servers see that

	// The connections there are of a client, apart from each other: some are silent or late for a
	// time, or the server ends them.
	"stall-subscription": {},
	"late-subscription":  {},
	"stall-requests":     {loses: true, fails: true},
	"stall-one":          {fails: true},
	"kill-subscription":  {},
	"kill-requests":      {fails: true},
	"kill-one":           {fails: true},
}

func init() {
	maps.Copy(kinds, furtherKinds)
	local = append(local, "torn", "overtaken", "pause-writes", "no-replicas", "lag", "replica-gone", "unacknowledged",
		"stall-subscription", "late-subscription", "stall-requests", "stall-one",
		"kill-subscription", "kill-requests", "kill-one")
}

func isFurther(kind string) bool {
	_, found := furtherKinds[kind]
	return found
}

// further draws the faults of those kinds.
func (g *generator) further() {
	g.adds(30, 15, func(f *Fault) {
		f.Kind, f.Way = "torn", pick(g.draw, int(up), int(down), int(down), 2)
		f.For = max(f.For, min(g.plan.TTL, longest))
	})
	g.adds(31, 10, func(f *Fault) { f.Kind, f.Client = "pause-writes", -1 })
	g.adds(33, 25, g.connection)
	g.successors()
	if g.plan.Replica {
		g.adds(32, 30, g.lag)
	}
}

// adds gives a part of the plans that have faults some more of one sort, or those alone. They
// are at the servers that give trouble anyway.
func (g *generator) adds(stream uint64, percent int, sort func(f *Fault)) {
	p := g.plan
	g.draw = &draw{rand.New(rand.NewPCG(p.Seed, stream))}
	if len(p.Faults) == 0 || !g.often(percent) {
		return
	}
	before := p.Faults
	if g.often(40) {
		p.Faults = nil
	}
	for range 1 + g.IntN(4) {
		f := Fault{At: g.within(0, p.Length), Client: g.IntN(len(p.Clients)), Server: g.place(before), Way: g.IntN(3)}
		f.For = g.lasting()
		sort(&f)
		p.Faults = append(p.Faults, f)
	}
}

// happenFurther has a fault of those kinds happen.
func (w *world) happenFurther(f Fault, end time.Time) {
	s := w.master(f.Server)
	switch f.Kind {
	case "nudge":
		s.step(f.Size)
	case "pause-writes":
		s.set(func() { s.faults.halted = end })
	case "no-replicas":
		s.unfollow(end)
	case "stall-subscription", "late-subscription", "stall-requests", "stall-one":
		for _, way := range w.ways(f) {
			way.stall(f, end)
		}
	case "kill-subscription", "kill-requests", "kill-one":
		for _, way := range w.ways(f) {
			for _, l := range way.chosen(f) {
				l.server.hangUp()
			}
		}
	case "cease":
		w.cease(f)
	case "foreign":
		w.intrudes(f)
	case "readdress":
		w.readdress(f)
	case "forget":
		w.forget(f)
	case "grow":
		w.grow(f)
	case "shrink":
		w.shrink(f)
	case "lesser":
		w.lesser(f)
	case "by-hand":
		w.handle(f)
	case "swap":
		w.swap(f)
	case "suspend":
		w.suspend(f)
	case wallOn, wallBack:
		w.setWall(f)
	case "no-master":
		w.ignores(f, end)
	case "breaker":
		w.opensBreakers(f.Client, end)
	case "greeting":
		w.disturbsGreetings(f, end)
	case "refresh":
		w.tellsCredentials(f.Client)
	case "kill-client":
		w.kill(f.Client)
	case "lag", "replica-gone":
		w.trail(s, f)
	case "torn":
		for _, way := range w.ways(f) {
			way.tear(f, end)
		}
	case "overtaken":
		for _, way := range w.ways(f) {
			way.races(f, end)
		}
	}
}

// touchFurther is what a fault touches beside what others of its kind would.
func (r *register) touchFurther(f Fault, t touched) []touched {
	switch f.Kind {
	case "nudge":
		return r.nudged(f, t)
	case "cease", "foreign", "grow", "shrink", "no-master", "by-hand", "swap":
		t.client = -1
	case "readdress":
		t.client, t.to = -1, t.to.Add(r.w.plan.Word)
	case "forget":
		t.client = -1
		if u := t; r.w.plan.Acks {
			u.kind = "unacknowledged"
			return []touched{t, u}
		}
	case "lag", "replica-gone":
		t.client = -1
		if u := t; r.w.plan.Acks {
			u.kind = "unacknowledged"
			return []touched{t, u}
		}
	case "torn": // again and again, for longer than a renewal may take
		if u := t; f.For > r.least/6 {
			u.kind = "cut"
			return []touched{t, u}
		}
	case "unanswered": // that many renewals may be all that there are in a lease
		if f.Size > 2 {
			t.kind = "cut"
		}
	case "pause-writes", "no-replicas":
		t.client = -1
	case "stall-one": // none is left of a pool of one, until the client library gives it up
		if r.w.plan.hasOneConnection(f.Client) {
			t.kind, t.to = "stall-requests", t.to.Add(readTimeout)
		}
	case "stall-subscription": // it is found out as soon as one that gets nothing any more
		t.kind, t.to = "mute", t.from.Add(noticed)
	case "standstill":
		return r.standsStill(f, t)
	case "kill-client":
		t.to = t.from.Add(r.w.plan.forgotten())
	case "late-subscription":
		t.to = t.to.Add(noticed)
	case "kill-subscription", "kill-requests", "kill-one":
		t.to = t.from
	}
	return []touched{t}
}

// readTimeout is for how long the client library waits for an answer, if nobody tells it otherwise.
const readTimeout = 5 * time.Second

// hasOneConnection reports whether a client, or with less than 0 any, has one connection for its
// requests: who wants another waits for it, or is refused and asks again.
func (p *Plan) hasOneConnection(client int) bool {
	for i, c := range p.Clients {
		if own := c.Own; (client < 0 || client == i) && own != nil && (own.PoolSize == 1 || own.Limits != nil && own.Limits.Active == 1) {
			return true
		}
	}
	return false
}
