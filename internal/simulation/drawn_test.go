package simulation

import (
	"slices"
	"strings"
)

// says reports whether the history of a run has such a line.
func (r *Result) says(text string) bool {
	return slices.ContainsFunc(r.History, func(e Event) bool { return strings.Contains(e.Text, text) })
}

// plansWith is how many of the first thousand plans have a fault of a kind.
func plansWith(kind string) (n int) {
	for seed := range uint64(1000) {
		if slices.ContainsFunc(NewPlan(seed, "").Faults, func(f Fault) bool { return f.Kind == kind }) {
			n++
		}
	}
	return n
}
