package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// An Aside is a question that is asked while somebody takes a lock, gives it back, or downgrades it.
type Aside struct {
	Call  string        // inspect, names, break, ping or examine
	At    string        // call, unlock or downgrade
	After time.Duration // since that has begun
}

// questions has clients of a quorum be asked, and ask, more often than others: while locks
// change hands, and while a minority gives trouble. Some clients do nothing else.
func (g *generator) questions() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 55))}
	p := g.plan
	if p.Backend != "quorum" || g.often(30) {
		return
	}
	calls := []string{"inspect"}
	for _, c := range []struct {
		call    string
		percent int
	}{{"names", 40}, {"break", 25}, {"ping", 20}} {
		if g.often(c.percent) {
			calls = append(calls, c.call)
		}
	}
	share := pick(g.draw, 0, 15, 40)
	soon := pick(g.draw, 3*p.Latency, 3*p.Latency, 100*time.Millisecond, p.TTL)
	g.each(func(op *Op) {
		if !op.asks() && g.often(share) {
			op.Asides = append(op.Asides, Aside{
				Call: pick(g.draw, calls...), At: pick(g.draw, "call", "unlock", "downgrade"), After: g.within(0, soon),
			})
		}
	})
	if g.often(50) {
		g.questioner(calls)
	}
	if len(p.Faults) > 0 && g.often(60) {
		g.unanswered()
	}
}

// questioner adds a client that takes no lock, and asks in bursts. In the midst of a burst a member
// that gives trouble anyway may be late with an answer, while it answers what is asked after that.
func (g *generator) questioner(calls []string) {
	p := g.plan
	calls = slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c == "break" })
	places, late := p.Faults, len(p.Faults) > 0 && g.often(60)
	if late && g.often(40) {
		p.Faults = nil
	}
	var ops []Op
	for at := g.within(0, p.Length/10); at < p.Length && len(ops) < 120; at += g.within(0, p.Length/10) {
		for i := range 2 + g.IntN(10) {
			op := Op{Pause: g.within(0, 3*p.Latency), Call: pick(g.draw, calls...), Names: []int{g.IntN(p.Names)}}
			if i == 0 {
				op.Pause = max(at-spent(ops, p), 0)
			}
			if g.often(20) {
				op.Wait, op.Cancel = g.within(0, 3*time.Second), g.often(50)
			}
			ops = append(ops, op)
		}
		if late {
			f := Fault{Kind: "stall-one", At: at, For: g.within(0, 2*time.Second), Client: len(p.Clients), Server: g.place(places), Way: 2}
			p.Faults = append(p.Faults, f)
			at += f.For
		}
		at = max(at, spent(ops, p))
	}
	p.Clients = append(p.Clients, Party{Workers: [][]Op{ops}, Asks: true})
}

// spent is about how long it takes to ask so much.
func spent(ops []Op, p *Plan) (d time.Duration) {
	for _, op := range ops {
		d += op.Pause + 2*p.Latency
	}
	return d
}

// unanswered has members that give trouble anyway not answer some of what is asked.
func (g *generator) unanswered() {
	p := g.plan
	places := p.Faults
	for range 1 + g.IntN(5) {
		f := Fault{
			Kind: pick(g.draw, "stall-one", "stall-one", "stall-one", "stall-requests", "delay", "pause", "cut", "hole"),
			At:   g.within(0, p.Length), For: g.lasting(), Client: g.IntN(len(p.Clients)),
			Server: pick(g.draw, places...).Server, Way: 2, Size: g.within(0, 200*time.Millisecond),
		}
		if f.Server == everywhere && !slices.Contains(networks, f.Kind) {
			f.Server = g.place(places)
		}
		p.Faults = append(p.Faults, f)
	}
}

// novelties has servers of a quorum be new, and first be met by who only asks, or have many keys of
// others.
func (g *generator) novelties() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 56))}
	p := g.plan
	if p.Backend != "quorum" {
		return
	}
	if g.often(20) { // they take several seconds at one server
		one := 2*p.Latency + 2*min(restShare*2*p.Latency, backend.MaxRest)
		p.Pages = min(int(g.within(2*time.Second, 6*time.Second)/one), 300)
		for i := range p.Clients {
			for _, ops := range p.Clients[i].Workers {
				if len(ops) > 0 && g.often(30) {
					ops[g.IntN(len(ops))].Asides = []Aside{{Call: "names", At: "call"}}
				}
			}
		}
	}
	if g.often(20) {
		g.fresh()
	}
}

// fresh has servers be new: somebody asks them before anybody takes a lock.
func (g *generator) fresh() {
	p := g.plan
	p.Fresh, p.Announced = true, true
	for i := range p.Clients {
		c := &p.Clients[i]
		c.Own = nil
		for _, ops := range c.Workers {
			if len(ops) > 0 && !c.Asks {
				ops[0].Pause += 2 * time.Second
			}
		}
	}
	first := Op{Call: pick(g.draw, "inspect", "ping", "names", "examine"), Names: []int{0}, Pause: g.within(0, time.Second)}
	p.Clients = append(p.Clients, Party{Workers: [][]Op{{first}}, Asks: true})
}

// turning is how long it takes at most to go through the pages of all servers, with pauses.
func (p *Plan) turning() time.Duration {
	trip := 2 * p.slowest()
	pause := time.Duration(p.need()) * min(restShare*trip, backend.MaxRest)
	return time.Duration(p.Pages*p.Servers) * (2*trip + pause)
}

// restShare is how many times as long as for a page the library waits before it asks for the next.
const restShare = 19

// aside asks what is to be asked at a moment of op.
func (a *actor) aside(op *Op, at string) {
	for _, s := range op.Asides {
		if s.At == at {
			a.asides.run(func() {
				if sleep(a.w.over, s.After) == nil && !a.c.dead.Load() {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					defer context.AfterFunc(a.w.over, cancel)()
					a.ask(ctx, nil, &Op{Call: s.Call, Names: op.Names[:1]})
				}
			})
		}
	}
}

// hasWritten checks that who takes no lock writes nothing, but to find out by that whether locks would
// work.
func (r *register) hasWritten(s *server, client string) {
	i := r.w.indexOf(client)
	if i < 0 || !r.w.plan.Clients[i].Asks || r.w.plan.Clients[i].examines() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violate("a question changes nothing", "c%d has written to s%d", i, s.index)
}

// examines reports whether a client looks at what servers can do.
func (p Party) examines() bool {
	return slices.ContainsFunc(p.Workers, func(ops []Op) bool {
		return slices.ContainsFunc(ops, func(op Op) bool { return op.Call == "examine" })
	})
}

// unheard checks that a majority answers a question: a member that does not, beside enough that do, is not
// waited for longer than a call has time.
func (r *register) unheard(c *call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w.plan.Backend != "quorum" || c.what == "examine" || r.dead[c.client] || r.stuttered(c.start) {
		return
	}
	if _, found := r.served[c.client]; !found && err == nil && r.w.plan.Clients[c.client].Asks {
		r.served[c.client] = time.Now()
	}
	if err == nil || r.closing[c.client] || errors.Is(err, dlock.ErrNotHeld) || errors.Is(err, dlock.ErrAuth) {
		return
	}
	if time.Since(c.start) < r.due(c)+100*r.w.plan.slowest() || r.w.over.Err() != nil {
		return
	}
	silent := 0
	for _, s := range r.members() {
		if r.misses(c.client, s, c.start) {
			silent++
		}
	}
	if silent <= r.w.plan.spare() {
		r.violate("a majority answers", "c%d %s %v after %v: %v", c.client, c.what, strings.Join(c.names, " "), time.Since(c.start), err)
	}
}
