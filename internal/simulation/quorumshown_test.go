package simulation

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A client whose place at a member that is far has not been given back yet, and which waits under another label by
// now, is shown twice; under each label no more often than at one of the members.
func TestShownToWait(t *testing.T) {
	client := strings.Repeat("0", 32)
	at := func(ids ...string) witness { return witness{spans: []span{{truth: truth{queue: ids}}}} }
	all := []witness{at("r30000:" + client + ":9.x"), at(), at("w30000:" + client + ":8=a.x")}
	r := newRegister(&world{plan: &Plan{Backend: "quorum", Servers: 3, TTL: 10 * time.Second}})
	for _, c := range []struct {
		labels []string
		untrue bool
	}{
		{[]string{""}, false},
		{[]string{"", "a"}, false},
		{[]string{"", ""}, true},
		{[]string{"a", "a"}, true},
		{[]string{"b"}, true},
	} {
		var s dlock.Snapshot
		for _, l := range c.labels {
			s.Waiters = append(s.Waiters, backend.Party{Client: client, Label: l})
		}
		untrue := false
		r.waitersShown(&call{start: time.Now()}, s, all, func(string, ...any) { untrue = true })
		if untrue != c.untrue {
			t.Errorf("%q: untrue is %v", c.labels, untrue)
		}
	}
}
