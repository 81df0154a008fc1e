package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// A cluster changes while clients live: a node comes back at another address, as where containers are
// started anew; a replica is forgotten, and one is added; and a slot moves while the shard that it leaves,
// or comes to, gets another master.

func init() {
	furtherKinds["readdress"] = touch{loses: true, fails: true}
	furtherKinds["forget"] = touch{}
	kinds["readdress"], kinds["forget"] = furtherKinds["readdress"], furtherKinds["forget"]
	local = append(local, "readdress", "forget")
}

// regroups draws such changes in a part of the clusters that have faults.
func (g *generator) regroups() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 81))}
	p := g.plan
	if !p.Cluster || len(p.Faults) == 0 || !g.often(35) {
		return
	}
	if g.often(60) {
		p.Faults = nil
	}
	some := pick(g.draw, []string{"readdress"}, []string{"forget"}, []string{"slot-move"}, []string{"slot-move"}, []string{"readdress", "forget", "slot-move"})
	for range 1 + g.IntN(4) {
		f := Fault{Kind: pick(g.draw, some...), At: g.within(0, p.Length), For: g.within(0, 2*time.Second), Client: -1, Server: g.shard(), Way: g.IntN(3)}
		p.Faults = append(p.Faults, f)
		if f.Kind == "slot-move" {
			g.meets(f)
		}
	}
}

// meets has the shard that a slot leaves, or another one, get a new master while the slot moves.
func (g *generator) meets(f Fault) {
	moves := &g.plan.Faults[len(g.plan.Faults)-1]
	moves.For = g.within(10*time.Millisecond, min(g.plan.TTL, mostMoving))
	for range 1 + g.IntN(2) {
		f := Fault{Kind: pick(g.draw, "failover", "failover", "takeover", "promotion"), Client: -1, Server: f.Server, Way: g.IntN(3)}
		f.At, f.For = moves.At+g.within(0, moves.For), g.within(0, time.Second)
		f.Size = g.within(0, 100*time.Millisecond)
		if g.often(60) {
			f.Server = (moves.Server + 1 + g.IntN(shards-1)) % shards
		}
		g.plan.Faults = append(g.plan.Faults, f)
	}
}

// address is where a server is now.
func (s *server) address() string { return s.addressAt(int(s.places.Load())) }

// addressAt is where a server was when it had come to another address so many times.
func (s *server) addressAt(n int) string { return fmt.Sprintf("10.%d.0.%d:6379", n, s.index+1) }

// addressOf is where another node is, as far as n knows.
func (n *node) addressOf(s *server) string {
	if s.node == n {
		return s.address()
	}
	return s.addressAt(n.places[s.index])
}

// hasBeen reports whether a server has ever had an address.
func (w *world) hasBeen(addr string) bool {
	return slices.ContainsFunc(w.nodes, func(s *server) bool {
		for n := range s.places.Load() {
			if s.addressAt(int(n)) == addr {
				return true
			}
		}
		return false
	})
}

// dialNobody connects with an address that a server had. In half of the plans nothing says that nobody
// is there. The client library connects a subscription with a mutex held; see dial.
func (w *world) dialNobody(ctx context.Context, addr string) (net.Conn, error) {
	if !w.plan.hangsUnsaid() || isSubscription() || !w.hasBeen(addr) {
		return nil, errRefused
	}
	if err := sleep(ctx, dialing); err != nil {
		return nil, err
	}
	return nil, errRefused
}

// hangsUnsaid reports whether nothing says that nobody is at an address any more.
func (p *Plan) hangsUnsaid() bool { return p.Seed%2 == 1 }

// looksAround reports whether a call asks any node of a cluster, as the first of a client does and one about a
// lock whose shard has gone, or all masters, and one of the nodes has left an address where nothing answers.
// The client library asks at any address that it knows, one after the other, for as long as it takes to
// connect.
func (r *register) looksAround(c *call) bool {
	_, served := r.served[c.client]
	anywhere := (!served || c.what == "names" || c.what == "ping") && r.w.hasSilentAddress()
	return anywhere || r.isAstray(c.client, c.names)
}

// hasSilentAddress reports whether a node of a cluster has left an address where nothing answers.
func (w *world) hasSilentAddress() bool {
	left := func(s *server) bool { return s.places.Load() > 0 }
	return w.layout != nil && w.plan.hangsUnsaid() && slices.ContainsFunc(w.nodes, left)
}

// isAstray reports whether a client asks after one of the locks at an address where nothing answers any more.
func (r *register) isAstray(client int, names []string) bool {
	return r.w.hasSilentAddress() && (r.isMisled(client) || slices.ContainsFunc(names, func(n string) bool { return r.isSoughtWhereItWas(client, n) }))
}

// isSoughtWhereItWas reports whether a client has had no answer about a lock since its slot left a shard whose
// nodes have gone, or since a node of its shard has left its address. It asks there, and then for the way at any
// address.
func (r *register) isSoughtWhereItWas(client int, name string) bool {
	slot := slotOf(lockKey(name))
	shard, _ := r.w.layout.shardOf(slot)
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		gone := func(o touched) bool { return o.kind == "retired" && o.server == t.server }
		left := t.kind == "slot-move" && slices.Contains(t.slots, slot) && slices.ContainsFunc(r.touches, gone) ||
			t.kind == "readdress" && t.server == shard
		return left && !r.located[party{client, name}].After(t.from)
	})
}

// isSentOn reports whether a client has had no answer about a lock since another node of its cluster may have come
// to have it. Who has asked nothing hears of that by a node that has the lock no longer, which names the other.
func (r *register) isSentOn(client int, name string) bool {
	if r.w.layout == nil {
		return false
	}
	slot := slotOf(lockKey(name))
	shard, _ := r.w.layout.shardOf(slot)
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		here := len(t.slots) == 0 || slices.Contains(t.slots, slot)
		if t.kind == "failover" {
			here = t.server == shard
		}
		return here && kinds[t.kind].splits && t.to.After(r.located[party{client, name}])
	})
}

// misleads is for how long the client library may ask a node after that was taken out of the cluster: it forgets
// a node a minute after another has not named it, and asks who that is now and then.
const misleads = 90 * time.Second

// isMisled reports whether a client of the program's own may believe a node that was taken out of the cluster, and
// names nobody: it asks after each lock at any address then. One that redis.Open makes does not.
func (r *register) isMisled(client int) bool {
	return r.w.plan.Clients[client].Own != nil && slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind == "retired" && time.Since(t.from) < misleads
	})
}

// locates notes that a call was answered by who has its locks.
func (r *register) locates(c *call) {
	for _, n := range c.names {
		r.located[party{c.client, n}] = time.Now()
	}
}

// readdress has a node restart with its data, and come back at another address, of which the other nodes
// hear.
func (w *world) readdress(f Fault) {
	s := w.master(f.Server)
	if r := s.replica; f.Way == 2 && r != nil {
		s = r
	}
	s.places.Add(1)
	w.restart(s, f, nil)
	if sleep(w.over, f.For) == nil {
		w.tellsPlace(s)
	}
}

// tellsPlace has the other nodes hear where a node is.
func (w *world) tellsPlace(s *server) {
	place := int(s.places.Load())
	for _, o := range w.nodes {
		time.AfterFunc(w.hearsay(), func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.node.places[s.index] = max(o.node.places[s.index], place)
		})
	}
}

// forget has all nodes forget the replica of a shard, which is gone, and meet another in its place: it
// is elsewhere, and has a copy of all.
func (w *world) forget(f Fault) {
	master := w.master(f.Server)
	master.mu.Lock()
	r := master.replica
	master.mu.Unlock()
	if r == nil || r.isForgotten() {
		return
	}
	end := time.Now().Add(f.For)
	r.set(func() { r.faults.down, r.faults.forgotten = end, end })
	r.mu.Lock()
	r.link.held = later(r.link.held, end)
	r.mu.Unlock()
	w.cut(r)
	w.lists(r, false)
	time.Sleep(f.For)
	r.places.Add(1)
	if master.leads(r) {
		master.followedBy(r, w.plan.Lag)
	}
	w.lists(r, true)
	w.tellsPlace(r)
}

// isForgotten reports whether a node is none of the cluster now.
func (s *server) isForgotten() bool {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return time.Now().Before(s.faults.forgotten)
}

// lists has all nodes name a node, or not.
func (w *world) lists(s *server, named bool) {
	for _, o := range w.nodes {
		time.AfterFunc(w.hearsay(), func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.node.unknown[s.index] = !named && s.isForgotten()
		})
	}
}
