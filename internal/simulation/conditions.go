package simulation

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// conditions draws what a plan has besides. It does so from numbers of its own: the rest
// of the plan is what it would be without.
func (g *generator) conditions() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 4))}
	p := g.plan
	p.Spies = g.often(50)
	if g.often(25) {
		p.Beat = pick(g.draw, 250*time.Millisecond, time.Second, 5*time.Second)
	}
	if p.Backend == "memory" && g.often(50) {
		p.Most = pick(g.draw, time.Second, 4*time.Second)
	}
	if p.Backend == "quorum" && g.often(40) {
		g.roll()
	}
	if p.Backend == "quorum" && g.often(30) {
		p.Far = g.within(0, min(50*time.Millisecond, p.TTL/(2*trips)-p.Latency))
		g.each(func(op *Op) {
			if op.TTL > 0 {
				op.TTL = max(op.TTL, 2*trips*(p.Latency+p.Far))
			}
		})
	}
	if p.Backend != "memory" && g.often(30) {
		g.worsen()
	}
	if g.often(25) {
		g.each(func(op *Op) { op.Twice = g.often(20) })
	}
	g.draw = &draw{rand.New(rand.NewPCG(p.Seed, 7))}
	if len(p.Faults) > 0 && g.often(20) {
		g.deletions()
	}
	g.draw = &draw{rand.New(rand.NewPCG(p.Seed, 6))}
	g.each(func(op *Op) { op.Late = op.Call == "break" && g.often(50) })
}

// skews has the clocks of servers differ: those of a quorum by as much as it allows for, and
// those of a master and its replicas by less than a lease has left while it is renewed.
func (g *generator) skews() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 11))}
	p := g.plan
	if p.Backend == "memory" || p.Servers == 1 && !p.Replica || !g.often(30) {
		return
	}
	most := p.leastTTL() / 4
	if p.Backend == "quorum" {
		most = cmp.Or(p.Skew, quorum.DefaultSkew)
	}
	for range 2 * max(p.Servers, p.shards()) {
		p.Skews = append(p.Skews, g.within(-most/2, most/2))
	}
}

// each goes through all that the parties do.
func (g *generator) each(f func(op *Op)) {
	var all func(ops []Op)
	all = func(ops []Op) {
		for i := range ops {
			f(&ops[i])
			all(ops[i].Inside)
		}
	}
	for _, c := range g.plan.Clients {
		for _, ops := range c.Workers {
			all(ops)
		}
	}
}

// worsen has what ends a connection, or keeps it from a client, begin as answers that come
// later and later: the last renewals are answered, and late.
func (g *generator) worsen() {
	for _, f := range g.plan.Faults {
		switch f.Kind {
		case "hole", "hole-reset", "half-open", "cut", "pause":
		default:
			continue
		}
		begin := g.within(0, g.plan.TTL)
		if begin > f.At {
			continue
		}
		g.plan.Faults = append(g.plan.Faults, Fault{
			Kind: "delay", At: f.At - begin, For: begin, Client: f.Client, Server: f.Server,
			Way: int(down), Size: g.within(g.plan.Latency, max(g.plan.Latency, g.plan.TTL/6)),
		})
	}
}

// deletions has data of a server deleted that goes on. A quorum relies on servers that
// delete no key of themselves.
func (g *generator) deletions() {
	p := g.plan
	for range 1 + g.IntN(4) {
		f := Fault{Kind: "flush", At: g.within(0, p.Length), Client: -1, Server: pick(g.draw, p.Faults...).Server}
		if p.Backend == "redis" && g.often(60) {
			f.Kind = "evict"
		}
		p.Faults = append(p.Faults, f)
	}
}

// roll has the servers give trouble one after the other, as where they are restarted in
// turn: the next before everything that the last has done is over.
func (g *generator) roll() {
	faults := g.plan.Faults
	if len(faults) == 0 {
		return
	}
	first, at, gap := g.IntN(g.plan.Servers), faults[0].At, g.plan.TTL
	if g.often(50) { // the same to all of them, one soon after the other
		if g.often(50) { // as where they are restarted
			faults[0].Kind = pick(g.draw, "restart", "restart-empty", "restart-old")
			faults[0].For, faults[0].Client = g.within(0, time.Second), -1
		}
		for i := range faults {
			faults[i] = faults[0]
		}
		gap /= 6
	}
	for i := range faults {
		faults[i].Server, faults[i].At = (first+i)%g.plan.Servers, at
		at = (at + g.within(0, gap)) % g.plan.Length
	}
}

// members draws what the servers of a quorum have besides, likewise.
func (g *generator) members() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 5))}
	if g.often(25) {
		g.five()
	}
	if len(g.plan.Faults) > 0 && g.often(30) {
		g.bare()
	}
	g.plan.Announced = g.often(50)
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 8))}
	if g.often(20) {
		g.forget()
	}
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 10))}
	if g.often(50) { // who restarts votes again before the parties have ended
		g.plan.MaxTTL = 5 * g.plan.TTL / 2
		g.plan.Skew = g.within(100*time.Millisecond, time.Second)
	}
}

// rejoining is for how long a member of a quorum takes no part after it has started.
func (p *Plan) rejoining() time.Duration {
	return cmp.Or(p.MaxTTL, quorum.DefaultMaxTTL) + 2*cmp.Or(p.Skew, quorum.DefaultSkew) + lingers
}

// forget has servers lose their data and go on, in place of restarting.
func (g *generator) forget() {
	for i, f := range g.plan.Faults {
		if strings.HasPrefix(f.Kind, "restart") {
			g.plan.Faults[i] = Fault{Kind: "flush", At: f.At, Client: -1, Server: f.Server}
		}
	}
}

// five has there be five servers. Where one alone gave trouble, two of them do.
func (g *generator) five() {
	p := g.plan
	p.Servers = 5
	places := g.Perm(p.Servers)
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Server != p.Faults[0].Server }) {
		places = places[:g.IntN(len(places))+1]
	} else {
		places = places[:2]
	}
	for i := range p.Faults {
		p.Faults[i].Server = pick(g.draw, places...)
	}
}

// bare has one client not reach as many servers as a majority can do without, again and
// again. What it takes meanwhile has a bare majority, and one of that restarts.
func (g *generator) bare() {
	p := g.plan
	places := g.Perm(p.Servers)
	missed, kept := places[:p.Servers/2], places[p.Servers/2:]
	client := g.IntN(len(p.Clients))
	kind := pick(g.draw, "restart", "restart-empty", "restart-old", "restart-old")
	if g.often(50) {
		p.Faults = nil
	}
	for at := g.within(0, p.TTL); at < p.Length; {
		miss := g.within(p.TTL/2, min(3*p.TTL, longest))
		for _, s := range missed {
			p.Faults = append(p.Faults, Fault{
				Kind: pick(g.draw, "cut", "hole-reset"), At: at, For: miss, Client: client, Server: s, Way: 2,
			})
		}
		restart := Fault{Kind: kind, Client: -1, Server: pick(g.draw, kept...), For: g.within(0, 200*time.Millisecond)}
		if kind == "restart-old" {
			restart.Size = g.within(0, miss)
		}
		restart.At = at + g.within(0, miss-restart.Size)
		if restart.At < p.Length {
			p.Faults = append(p.Faults, restart)
		}
		at += miss + g.within(0, 2*p.TTL)
	}
}

// beat waits for the next of the moments at which all parties begin what they do, as
// those do that a clock starts.
func (w *world) beat() error {
	d := w.plan.Beat
	if d == 0 {
		return nil
	}
	return sleep(w.over, d-time.Since(w.reg.began)%d)
}

// A stingy backend grants less time than it is asked for.
type stingy struct {
	*memory.Backend
	most time.Duration
}

func (b stingy) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	h, err := b.Backend.Acquire(ctx, r)
	if err == nil {
		h.Granted = min(h.Granted, b.most)
	}
	return h, err
}

// A spy is a context that is asked for its end while the library ends a lease: whatever
// hears of the end so may ask at that moment what else is over.
type spy struct {
	context.Context
	look atomic.Pointer[func()]
}

func (s *spy) Done() <-chan struct{} {
	if look := s.look.Load(); look != nil {
		(*look)()
	}
	return s.Context.Done()
}

// spies has the end of a lease looked at from within.
func (r *register) spies(lease *dlock.Lease, all []*belief) {
	if !r.w.plan.Spies {
		return
	}
	s := &spy{Context: context.Background()}
	lease.Context(s)
	look := func() {
		if !r.mu.TryLock() {
			return // perhaps it is asked whether it is over by who has the mutex
		}
		defer r.mu.Unlock()
		for _, b := range all {
			r.endsTogether(b)
		}
	}
	s.look.Store(&look)
}

// endsTogether checks that all leases on a hold that is lost are over at one moment.
func (r *register) endsTogether(b *belief) {
	if r.dead[b.client] || b.multi || r.stuttered(time.Now()) || !errors.Is(b.lease.Err(), dlock.ErrLost) {
		return // of a multi-lock another lock may be lost
	}
	for _, o := range r.beliefs {
		if o.name == b.name && (o.under(b) || b.under(o)) && !o.gone && o.lease.Err() == nil {
			r.violate("a loss is one moment", "%v is alive, and not %v", o, b)
		}
	}
}
