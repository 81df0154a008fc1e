package simulation

import (
	"math/rand/v2"
	"time"
)

// Since Redis 8.4 a slot may move as a whole (CLUSTER MIGRATION): its new master gets a copy of all its keys and
// follows what changes, while the old one goes on as if nothing was. Then that keeps scripts waiting for a moment,
// and both know at once that the slot has moved, with all keys. No client is ever told to ask, nor to try again.

// atomically has slots of a part of the clusters move so. A failover forgets no such move.
func (g *generator) atomically() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 242))}
	p := g.plan
	if !p.Cluster || len(p.Faults) == 0 || len(p.Old) > 0 || !g.often(30) {
		return
	}
	p.Atomic, p.Forgetful = true, false
	for range g.IntN(4) {
		f := Fault{Kind: "slot-move", At: g.within(0, p.Length), For: g.within(0, 2*time.Second), Client: -1, Server: g.shard(), Way: g.IntN(3), Size: g.within(0, time.Second)}
		p.Faults = append(p.Faults, f)
	}
}

// movesAtOnce reports whether a fault is a move of which nobody notices anything until its end: what it may cost
// then is noted then.
func (w *world) movesAtOnce(f Fault) bool { return f.Kind == "slot-move" && w.plan.Atomic }

// mostPaused is for how long a master keeps scripts waiting that a slot leaves, at most.
const mostPaused = 50 * time.Millisecond

// carryAtOnce moves a slot with all its keys at one moment, after a time.
func (w *world) carryAtOnce(slot, from, to int, takes time.Duration, rnd *rand.Rand) {
	w.reg.tell(-2, "slot %d is copied from shard %d to %d", slot, from, to)
	w.rests(takes)
	pause := time.Duration(rnd.Int64N(int64(mostPaused)))
	w.awaitMasters(from, to)
	for !w.handsOver(slot, from, to, pause) {
		w.rests(20 * time.Millisecond)
		w.awaitMasters(from, to)
	}
	w.reg.tell(-2, "slot %d is in shard %d", slot, to)
}

// handsOver has the master of a slot keep scripts waiting for a time and hand the slot over then, and reports
// false if somebody else has come in the way of that.
func (w *world) handsOver(slot, from, to int, pause time.Duration) bool {
	s := w.master(from)
	goesOn := s.halts()
	if goesOn == nil {
		return false
	}
	defer goesOn()
	heard := time.Now().Add(pause + w.plan.Word + 4*w.plan.Lag)
	for _, kind := range []string{"slot-move", "word"} {
		if kind == "slot-move" || w.costsLeases(Fault{Kind: "slot-move"}) {
			w.reg.opens(touched{kind: kind, client: -1, server: from, from: time.Now(), to: heard, slots: []int{slot}})
		}
	}
	w.rests(pause)
	t := w.master(to)
	if w.master(from) != s || !t.moves() || !s.accepts() || s.pause() > 0 {
		return false
	}
	c := claim{to, w.layout.nextEpoch()}
	first, second := s, t
	if s.index > t.index {
		first, second = t, s
	}
	first.mu.Lock()
	second.mu.Lock()
	w.layout.move(slot, to, true)
	s.gives(t, slot, w.names(), func(keys []string) []string { return keys })
	t.hasHeardSlot(slot, c)
	s.hasHeardSlot(slot, c)
	second.mu.Unlock()
	first.mu.Unlock()
	for _, o := range w.nodes {
		time.AfterFunc(w.hearsay(), func() { o.hearsSlot(slot, c) })
	}
	return true
}

// halts has a master keep scripts waiting until the caller ends that; nil if it does already.
func (s *server) halts() (goesOn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node.halted != nil {
		return nil
	}
	mine := make(chan struct{})
	s.node.halted = mine
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.node.halted == mine {
			s.node.goOn()
		}
	}
}
