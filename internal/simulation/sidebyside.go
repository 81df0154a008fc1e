package simulation

import (
	"math/rand/v2"
	"slices"
)

// sideBySide has several slots of a cluster move at one time, to one shard or to several.
func (g *generator) sideBySide() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 201))}
	p := g.plan
	if !p.Cluster || !g.often(50) {
		return
	}
	p.Movers = 2 + g.IntN(2)
	for _, f := range slices.Clone(p.Faults) {
		if f.Kind != "slot-move" || f.Trigger != nil {
			continue
		}
		f.At += g.within(0, f.For)
		f.Server = g.shard()
		p.Faults = append(p.Faults, f)
	}
}

// movers is how many slots move at once at most.
func (p *Plan) movers() int { return max(p.Movers, 1) }

// operates has the caller be one of those who move slots, once there is room, until it ends that.
func (l *layout) operates() (end func()) {
	l.operators <- struct{}{}
	return func() { <-l.operators }
}

// operatesAlone has nobody else move a slot until the caller ends that.
func (l *layout) operatesAlone() (end func()) {
	l.alone <- struct{}{}
	var ends []func()
	for range cap(l.operators) {
		ends = append(ends, l.operates())
	}
	return func() {
		for _, end := range ends {
			end()
		}
		<-l.alone
	}
}

// takes has one of some slots be moved by the caller alone, until it ends that.
func (l *layout) takes(some []int, choose func(n int) int) (slot int, end func(), found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	some = slices.DeleteFunc(some, func(slot int) bool { return l.taken[slot] })
	if len(some) == 0 {
		return 0, nil, false
	}
	slot = some[choose(len(some))]
	l.taken[slot] = true
	return slot, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.taken, slot)
	}, true
}
