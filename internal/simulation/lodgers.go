package simulation

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"

	goredis "github.com/redis/go-redis/v9"
)

// A lodger is a client of the library that uses the client library's of another one, its host: a program
// gives what it has to several. They share connections and what goes wrong with these, and nothing else:
// each has its own locks, TTL and subscription, and goes on when the other is closed.

// lodges draws clients that share their connections.
func (g *generator) lodges() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 135))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || len(p.Clients) < 2 || !g.often(10) {
		return
	}
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Trigger != nil }) { // it looks at whose connection it is
		return
	}
	host := g.IntN(len(p.Clients) - 1)
	for i := host + 1; i < len(p.Clients); i++ {
		if i == host+1 || g.often(50) {
			g.lodge(host, i)
		}
	}
	for i, f := range p.Faults {
		if f.Client < 0 {
			continue
		}
		if h := p.hostOf(f.Client); p.isShared(h) {
			if p.Faults[i].Client = h; f.Kind == "die" || f.Kind == "kill-client" { // a process of both
				p.Faults[i].Kind = "reset"
			}
		}
	}
}

// lodge has client i use the connections of another one, if it can.
func (g *generator) lodge(host, i int) {
	h, c := &g.plan.Clients[host], &g.plan.Clients[i]
	if h.After > 0 || h.Opens != nil || c.Opens != nil || h.Asks || c.Asks || h.Poll != c.Poll {
		return
	}
	c.Lodges, c.Own = host+1, h.Own
	if g.often(40) {
		ttl := g.within(max(g.plan.leastTTL(), g.plan.TTL/2), 2*g.plan.TTL)
		for _, ops := range c.Workers {
			for j := range ops {
				if ops[j].TTL == 0 && !ops[j].ByName {
					ops[j].TTL = ttl
				}
			}
		}
	}
	if one := pick(g.draw, h, c); g.often(60) && one.Close == 0 && one.After == 0 {
		one.Close = g.within(g.plan.Length/4, g.plan.Length)
	}
}

// apart has each client have connections of its own.
func (p *Plan) apart() {
	for i := range p.Clients {
		p.Clients[i].Lodges = 0
	}
}

// hostOf is the client whose connections a client uses, mostly itself.
func (p *Plan) hostOf(client int) int {
	if client >= 0 && p.Clients[client].Lodges > 0 {
		return p.Clients[client].Lodges - 1
	}
	return client
}

// isShared reports whether others use the connections of a client, or it uses those of another.
func (p *Plan) isShared(client int) bool {
	h := p.hostOf(client)
	return slices.ContainsFunc(p.Clients, func(c Party) bool { return c.Lodges == h+1 })
}

// clientFor returns the client library's for one place: that of its host, or one of its own.
func (w *world) clientFor(c *client, place int) goredis.UniversalClient {
	if h := w.plan.hostOf(c.index); h != c.index {
		return w.clients[h].shared[place]
	}
	if w.plan.Clients[c.index].Fleeting == "shared" && place < len(c.shared) { // that of the client before
		return c.shared[place]
	}
	g := w.client(c.index, place)
	c.shared = append(c.shared, g)
	return g
}

// introduce has servers know the ids of a client, whatever connection they come by.
func (w *world) introduce(c *client) {
	id := (*string)(reflect.ValueOf(c.Client).Elem().FieldByName("id").Addr().UnsafePointer())
	w.owners.Store(*id, w.label(c.index))
}

// speaker is the client that has sent a script, as its connection or an id in it says.
func (s *server) speaker(client string, args []string) string {
	if s.world == nil || !s.world.plan.isShared(s.world.indexOf(client)) {
		return client
	}
	for _, a := range args {
		if owner := s.owner(a); owner != "" {
			return owner
		}
	}
	return client
}

// ownerOf is the number of the client that made an id.
func (w *world) ownerOf(id string) int {
	label, _ := w.owners.Load(clientOf(id))
	name, _ := label.(string)
	return w.indexOf(name)
}

// adds notes what a fault touches: what concerns the connections of a client concerns those who lodge
// with it.
func (r *register) adds(all ...touched) {
	for _, t := range all {
		r.touches = append(r.touches, t)
		for i, c := range r.w.plan.Clients {
			if t.client >= 0 && c.Lodges == t.client+1 {
				u := t
				u.client = i
				r.touches = append(r.touches, u)
			}
		}
	}
}

// leaves closes what a client has made of the client library. Nobody else may have closed it.
func (w *world) leaves(c *client) {
	opened := w.plan.Clients[c.index].Opens != nil || w.plan.Clients[c.index].Fleeting == "open" || w.plan.isFirst(c.index) // that is the library's own, or the program has
	for _, g := range c.shared {
		if err := g.Close(); errors.Is(err, goredis.ErrClosed) && !opened {
			w.reg.mu.Lock()
			w.reg.violate("what is the caller's stays open", "c%d: %v", c.index, err)
			w.reg.mu.Unlock()
		}
	}
}
