package simulation

import (
	"slices"
)

// Shrink takes away from a plan what its failure does not need: clients, goroutines,
// faults, and calls. Fails runs a plan and reports whether it still fails.
func Shrink(p *Plan, fails func(*Plan) bool) *Plan {
	for again := true; again; {
		again = false
		for _, smaller := range candidates(p) {
			if fails(smaller) {
				p, again = smaller, true
				break
			}
		}
	}
	return p
}

// candidates are smaller plans, the smallest first.
func candidates(p *Plan) []*Plan {
	var all []*Plan
	for i := range p.Clients { // a client keeps its number, and does nothing
		if len(p.Clients[i].Workers) > 0 {
			all = append(all, p.with(func(q *Plan) { q.Clients[i].Workers = nil }))
		}
	}
	for i := range p.Faults {
		all = append(all, p.with(func(q *Plan) { q.Faults = slices.Delete(q.Faults, i, i+1) }))
	}
	for i, c := range p.Clients {
		if len(c.Workers) > 1 {
			for j := range c.Workers {
				all = append(all, p.with(func(q *Plan) { q.Clients[i].Workers = slices.Delete(q.Clients[i].Workers, j, j+1) }))
			}
		}
	}
	for size := 32; size > 0; size /= 2 {
		for i, c := range p.Clients {
			for j, ops := range c.Workers {
				for from := 0; from+size <= len(ops); from += size {
					all = append(all, p.with(func(q *Plan) {
						w := q.Clients[i].Workers
						w[j] = slices.Delete(w[j], from, from+size)
					}))
				}
			}
		}
	}
	return all
}

// with is a copy of p that f has changed.
func (p *Plan) with(f func(*Plan)) *Plan {
	q := *p
	q.Faults = slices.Clone(p.Faults)
	q.Clients = slices.Clone(p.Clients)
	for i, c := range q.Clients {
		q.Clients[i].Workers = slices.Clone(c.Workers)
		for j, ops := range c.Workers {
			q.Clients[i].Workers[j] = slices.Clone(ops)
		}
	}
	f(&q)
	return &q
}
