package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/renewal"
)

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

// comesInParts reports whether a member may have told of its readers in several parts. Of two that a client has one
// after the other the first may leave before its part, and the second come after its own.
func (r *register) comesInParts(all []witness) bool {
	return r.w.plan.Small && greatest(all, func(p span) int { return len(p.holders()) }) > 1
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

// renewalBegan is when the renewal began at the earliest that was sent then. With one pipeline at a time
// it may have waited for another, and for the word that the server does not know the script.
func (r *register) renewalBegan(b *belief, l loss) time.Time {
	if r.w.plan.Small {
		return b.lease.Until().Add(-b.ttl)
	}
	return l.began
}

// hasTooMany reports whether a client was refused a lock as it has more than it can renew, which with small limits
// are some tens.
func (r *register) hasTooMany(err error) bool {
	return r.w.plan.Small && errors.Is(err, renewal.ErrBehind)
}

// takesOff reports whether a script has taken somebody from the queue whom no message reaches. With small limits it
// leaves who is next to the script after it then.
func (r *register) takesOff(old, t truth) bool {
	return r.w.plan.Small && len(t.queue) < len(old.queue)
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
