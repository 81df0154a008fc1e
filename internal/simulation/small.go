package simulation

import "slices"

// With small limits (see testdata/small) an answer comes in several parts, as without them it does
// where very many wait: who leaves and comes back between two of them may be in it twice.

// mostShown is how many ids of a client one answer of a member may have.
func (r *register) mostShown(all []witness, client string, ids func(span) []string) int {
	if !r.w.plan.Small {
		return greatest(all, func(p span) int { return countOf(ids(p), client) })
	}
	most := 0
	for _, w := range all {
		var meanwhile []string
		for _, p := range w.spans {
			meanwhile = union(meanwhile, ids(p))
		}
		most = max(most, countOf(meanwhile, client))
	}
	return most
}

// mostQueued is how many an answer may show to wait.
func (r *register) mostQueued(periods []period) (most int) {
	var meanwhile []string
	for _, p := range periods {
		most = max(most, len(p.queue))
		meanwhile = union(meanwhile, p.queue)
	}
	if r.w.plan.Small {
		return len(meanwhile)
	}
	return most
}

// union adds to a what it has not.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
