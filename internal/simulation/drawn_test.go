package simulation

import (
	"slices"
	"strings"
)

// says reports whether the history of a run has such a line.
func (r *Result) says(text string) bool {
	return slices.ContainsFunc(r.History, func(e Event) bool { return strings.Contains(e.Text, text) })
}

// plansWhere is how many of the first thousand plans are such.
func plansWhere(is func(p *Plan) bool) (n int) {
	for seed := range uint64(1000) {
		if is(NewPlan(seed, "")) {
			n++
		}
	}
	return n
}

// plansWith is how many of those have a fault of a kind.
func plansWith(kind string) int {
	return plansWhere(func(p *Plan) bool {
		return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == kind })
	})
}
