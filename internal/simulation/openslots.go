package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Before Valkey 8 that a slot moves is known to the two masters alone, and not to their replicas. One that takes
// over where the slot leaves says of the keys that have gone that they do not exist, and another may take
// their locks; and the node that the slot comes to says that the cluster is down, as nobody has that slot any
// more. One that takes over where the slot comes to refuses what is asked about it. In both cases whoever
// moves the slot stops, and mends it later.

func init() {
	furtherKinds["forgotten-slot"] = touch{loses: true, fails: true, data: true, splits: true}
	furtherKinds["refused-slot"] = touch{loses: true, fails: true, splits: true}
	for _, k := range []string{"forgotten-slot", "refused-slot"} {
		kinds[k] = furtherKinds[k]
	}
}

// forgetful draws clusters whose replicas do not know which slots move, while shards get other masters.
func (g *generator) forgetful() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 140))}
	p := g.plan
	if !p.Cluster || len(p.Faults) == 0 || !g.often(35) {
		return
	}
	p.Forgetful = true
	if g.often(60) {
		p.Faults = nil
	}
	for range 1 + g.IntN(3) {
		f := Fault{Kind: "slot-move", At: g.within(0, p.Length), Client: -1, Server: g.shard(), Way: g.IntN(3), Size: g.within(0, time.Second)}
		p.Faults = append(p.Faults, f)
		g.meets(f)
	}
}

// importerOf is the server to which a slot is under way, as its master knows it. Before Valkey 8 that is the one
// that was the master there as the move began.
func (n *node) importerOf(slot int) *server {
	if i, found := n.importers[slot]; found && n.world.plan.Forgetful {
		return n.world.nodes[i]
	}
	return n.world.nodes[n.masters[n.leaving[slot]].who]
}

// misses has a node that a slot comes to not know any more who has it: the master of that shard is another one,
// and what a node says of itself does not count for a slot that moves.
func (n *node) misses(shard int) {
	for slot, from := range n.coming {
		if from == shard && n.world.plan.Forgetful {
			n.missed[slot] = true
		}
	}
}

// unmended is until when a slot may not be in order, as long as nobody has mended it: for ever.
const unmended = 24 * time.Hour

// forgetsMoves notes that the replica of a shard takes over that does not know which slots move. The master of
// before may point to where the keys are for a time.
func (w *world) forgetsMoves(shard int, leaving, coming map[int]int, late time.Duration) {
	now := time.Now()
	heard := now.Add(max(late, 0) + w.plan.Word + 4*w.plan.Lag)
	for slot, to := range leaving {
		w.layout.move(slot, shard, true)
		w.reg.opens(
			touched{kind: "forgotten-slot", client: -1, server: shard, from: now, to: heard, slots: []int{slot}},
			touched{kind: "cluster-down", client: -1, server: to, from: now, to: now.Add(unmended), slots: []int{slot}, open: true},
		)
	}
	for slot := range coming {
		w.reg.opens(touched{kind: "refused-slot", client: -1, server: shard, from: now, to: now.Add(unmended), slots: []int{slot}, open: true})
	}
}

// isAway reports whether one of the two masters does not know that a slot moves.
func (w *world) isAway(slot, from, to int) bool {
	knows := func(s *server, of func(n *node) map[int]int) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, found := of(s.node)[slot]
		return found
	}
	leaves := knows(w.master(from), func(n *node) map[int]int { return n.leaving })
	comes := knows(w.master(to), func(n *node) map[int]int { return n.coming })
	return w.plan.Forgetful && !(leaves && comes)
}

// mend ends the move of a slot that nodes have forgotten, after a time. It has the keys be where the slot is,
// those from before the move in place of others or only where there are none; or lets the move go on where the
// slot comes to, and says so.
func (w *world) mend(slot, from, to int, after time.Duration, rnd *rand.Rand) (goesOn bool) {
	w.reg.tell(-2, "the move of slot %d from shard %d to %d stops", slot, from, to)
	w.rests(after)
	w.awaitMasters(from, to)
	owner, other := w.master(from), w.master(to)
	owner.mu.Lock()
	_, leaves := owner.node.leaving[slot]
	owner.mu.Unlock()
	either := rnd.IntN(2) == 0
	if leaves && either {
		w.opensMove(slot, from, to)
		w.reg.mended(slot, w.plan.Word)
		return true
	}
	if !leaves {
		w.reg.opens(touched{kind: "forgotten-slot", client: -1, server: from, from: time.Now(), to: time.Now(), slots: []int{slot}})
		if either {
			other.leavesOut(owner, slot)
		}
	}
	other.give(owner, slot, w.names(), func(keys []string) []string { return keys })
	w.settles(slot, from, owner, other)
	w.reg.mended(slot, w.plan.Word)
	return false
}

// leavesOut deletes those keys of a slot that another server has too.
func (s *server) leavesOut(other *server, slot int) {
	there := other.save()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.data.values {
		if slotOf(k) == slot && there.values[k] != nil {
			delete(s.data.values, k)
			s.send(effect{args: []string{"DEL", k}})
		}
	}
}

// opens notes faults of the world's own.
func (r *register) opens(all ...touched) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range all {
		r.touches = append(r.touches, t)
		r.note(-2, "%s s%d slot %d", t.kind, t.server, t.slots[0])
		for _, name := range r.w.names() {
			if slices.Contains(t.slots, slotOf(lockKey(name))) {
				r.coverage[t.kind+" × "+r.stateOf(name)]++
			}
		}
	}
}

// mended notes that a slot is in order, of which all hear within a time.
func (r *register) mended(slot int, word time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(-2, "slot %d is mended", slot)
	for i, t := range r.touches {
		if t.open && slices.Contains(t.slots, slot) {
			r.touches[i].open, r.touches[i].to = false, time.Now().Add(word)
		}
	}
}

// isAbout reports whether a fault is about a lock, as far as it is about some and no others.
func (t touched) isAbout(name string) bool {
	return t.kind != "forgotten-slot" || slices.Contains(t.slots, slotOf(lockKey(name)))
}

// dataLostOf is dataLost for one lock.
func (r *register) dataLostOf(name string) bool {
	about := func(t touched) bool { return kinds[t.kind].data && t.isAbout(name) }
	return r.dataLost() && (r.w.layout == nil || slices.ContainsFunc(r.touches, about))
}
