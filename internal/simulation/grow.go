package simulation

import (
	"math/rand/v2"
	"time"
)

// A cluster gets another master, to which slots move with their keys, and a master is taken out of it: all its slots
// move away, it and its replica follow who has got them, as they do by themselves, and the others forget both. They
// live on for a while and say where the slots are, know nobody any more, or are gone.

func init() {
	furtherKinds["grow"] = touch{}
	furtherKinds["shrink"] = touch{}
	furtherKinds["retired"] = touch{fails: true}
	for _, k := range []string{"grow", "shrink", "retired"} {
		kinds[k] = furtherKinds[k]
	}
}

// added is the shard that has no slots at first.
const added = shards

// grows draws clusters whose masters come and go.
func (g *generator) grows() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 141))}
	p := g.plan
	if !p.Cluster || len(p.Faults) == 0 || !g.often(30) {
		return
	}
	p.Grows = true
	if g.often(60) {
		p.Faults = nil
	}
	last := time.Duration(0)
	if g.often(70) {
		last = g.within(0, p.Length/2)
		p.Faults = append(p.Faults, Fault{Kind: "grow", At: last, For: g.within(0, 2*time.Second), Client: -1, Server: g.shard()})
	}
	for range 1 + g.IntN(2) {
		last = g.within(last, p.Length)
		f := Fault{Kind: "shrink", At: last, For: g.within(0, 2*time.Second), Client: -1, Server: pick(g.draw, added, added, g.shard()), Way: g.IntN(3)}
		f.Size = pick(g.draw, g.within(0, time.Second), g.within(0, min(2*p.TTL, longest)))
		p.Faults = append(p.Faults, f)
	}
	if g.often(30) {
		f := Fault{Kind: pick(g.draw, "failover", "failover", "takeover", "promotion"), At: g.within(0, p.Length), Client: -1, Server: g.IntN(shards + 1), Way: g.IntN(3)}
		f.For, f.Size = g.within(0, time.Second), g.within(0, 100*time.Millisecond)
		p.Faults = append(p.Faults, f)
	}
}

// slotsAt are those of the locks that are in a shard.
func (w *world) slotsAt(shard int) (all []int) {
	for _, name := range w.names() {
		if slot := slotOf(lockKey(name)); w.keeper(name) == w.master(shard) {
			all = append(all, slot)
		}
	}
	return all
}

// grow has the slots of all locks of a shard move to the one that was added.
func (w *world) grow(f Fault) {
	defer w.layout.operatesAlone()()
	if w.layout.isGone(added) || f.Server == added {
		return
	}
	w.empties(f.Server, added, f)
}

// empties moves the slots of the locks of one shard to another, and reports whether all have arrived.
func (w *world) empties(from, to int, f Fault) bool {
	rnd := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.At)))
	for _, slot := range w.slotsAt(from) {
		if !w.carry(slot, from, to, f.For, rnd) {
			return false
		}
	}
	return true
}

// shrink takes a shard out of the cluster.
func (w *world) shrink(f Fault) {
	defer w.layout.operatesAlone()()
	to := w.layout.nextTo(int(f.At/time.Millisecond)%shards, f.Server)
	if !w.layout.mayLeave(f.Server) || !w.empties(f.Server, to, f) {
		return
	}
	all := []*server{w.master(f.Server)}
	if r := all[0].replica; r != nil {
		all = append(all, r)
	}
	w.bequeaths(f.Server, to)
	all[0].abandoned()
	for _, s := range all {
		s.retires(w.master(to), to)
		for _, o := range w.nodes {
			time.AfterFunc(w.hearsay(), func() { o.disowns(s) })
		}
	}
	w.reg.tell(-2, "shard %d has left", f.Server)
	go w.outlive(f, all)
}

// outlive says what becomes of nodes that have left, after a time.
func (w *world) outlive(f Fault, all []*server) {
	time.Sleep(f.Size)
	if f.Way == 0 {
		return
	}
	now := time.Now()
	w.reg.mu.Lock()
	w.reg.touches = append(w.reg.touches, touched{kind: "retired", client: -1, server: f.Server, from: now, to: now})
	w.reg.note(-2, "the nodes of shard %d end, way %d", f.Server, f.Way)
	w.reg.mu.Unlock()
	for _, s := range all {
		if f.Way == 1 {
			s.resets()
			continue
		}
		s.places.Add(1) // nobody is at its address
		s.set(func() { s.faults.down = now.Add(unmended) })
		w.cut(s)
	}
}

// isGone reports whether a shard has left.
func (l *layout) isGone(shard int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, found := l.heirs[shard]
	return found
}

// mayLeave reports whether a shard may be taken out: a first one of those that there were at first, whose slots
// are not handed on, or the one that was added.
func (l *layout) mayLeave(shard int) bool {
	if l.isGone(shard) {
		return false
	}
	for home := range shards {
		if shard != added && l.isGone(home) {
			return false
		}
	}
	return true
}

// nextTo is the first shard from one on that has not left, and is not another one.
func (l *layout) nextTo(first, than int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range shards {
		to := (first + i) % shards
		if _, found := l.heirs[to]; !found && to != than {
			return to
		}
	}
	return -1
}

// bequeaths has a shard have all slots that were another's at first.
func (w *world) bequeaths(shard, to int) {
	w.layout.mu.Lock()
	w.layout.heirs[shard] = to
	w.layout.mu.Unlock()
	for _, s := range w.nodes {
		delay := w.hearsay()
		if s == w.master(shard) || s == w.master(to) {
			delay = 0
		}
		time.AfterFunc(delay, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.node.heirs[shard] = to
		})
	}
}

// retires has a node that has no slots any more follow who has got them, as a replica of that shard.
func (s *server) retires(master *server, shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master, s.link.stream = master, nil
	s.data = newStore()
	s.data.now, s.data.follows = s.clock().UnixMilli(), true
	s.node.joined[s.index] = shard
	s.node.goOn()
	s.lookAll()
}

// disowns has a node forget another, as CLUSTER FORGET does.
func (s *server) disowns(o *server) {
	if s == o {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node.unknown[o.index] = true
}

// resets has a node know no other, as CLUSTER RESET does: nobody has any slot.
func (s *server) resets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master, s.node.alone = nil, true
	s.drop(func(int) bool { return true })
}

// shardHas is the shard that another node is in, as far as n knows.
func (n *node) shardHas(o *server) int {
	if shard, found := n.joined[o.index]; found {
		return shard
	}
	return o.node.shard
}
