package simulation

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Plans have servers that end connections which are idle, in plans that last longer, too. A client whose calls are
// farther apart locks on another connection each time, and one whose calls are nearer on the same.
func TestServersEndIdleConnections(t *testing.T) {
	const s = time.Second
	found := make(map[time.Duration]bool)
	for seed := range uint64(1000) {
		found[NewPlan(seed, "").Ends] = true
	}
	for _, after := range []time.Duration{s, 5 * s, 20 * s, time.Minute} {
		if !found[after] {
			t.Errorf("no plan has servers that end a connection after %v", after)
		}
	}
	sender := regexp.MustCompile(`^s0 (c0#\d+) EVALSHA`)
	for after, want := range map[time.Duration]int{0: 1, s: 4, 5 * s: 1} {
		op := Op{Pause: 2 * s, Call: "trylock", Names: []int{0}, Unlock: "live"}
		p := usesOf(Party{Workers: [][]Op{slices.Repeat([]Op{op}, 5)}})
		p.Ends, p.Trace = after, true
		r, on := runUses(t, p), make(map[string]bool)
		for _, e := range r.History {
			if m := sender.FindStringSubmatch(e.Text); m != nil && strings.Contains(e.Text, "dlock:{a}") {
				on[m[1]] = true
			}
		}
		if r.Grants != 5 || len(on) < want || want == 1 && len(on) > 1 {
			t.Errorf("after %v: %d leases, and requests on %d connections, want %d", after, r.Grants, len(on), want)
		}
	}
}
