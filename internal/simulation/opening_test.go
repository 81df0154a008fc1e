package simulation

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A client that begins while something is wrong is told so in time, and begins as soon as that is over.
func TestOpenings(t *testing.T) {
	const away, second = 5 * time.Second, time.Second
	at := func(kind string, server, way int) Fault {
		return Fault{Kind: kind, At: second, For: away, Client: -1, Server: server, Way: way}
	}
	for _, c := range []struct {
		name   string
		plan   Plan
		limit  time.Duration
		faults []Fault
		then   []string
	}{
		{"all is well", Plan{}, 0, nil, []string{"open: <nil>", "lock a: token"}},
		{"the server hangs", Plan{}, second, []Fault{at("pause", 0, 2)}, []string{"open: dlock", "open: <nil>", "lock a: token"}},
		{"the server is gone", Plan{}, 0, []Fault{at("restart", 0, 2)}, []string{"open: <nil>", "lock a: token"}},
		{"the password is wrong", Plan{}, 0, []Fault{at("login", 0, 0)}, []string{"open: dlock: open: access denied", "open: <nil>", "lock a: token"}},
		{"a minority is gone", Plan{Backend: "quorum", Servers: 3}, 0, []Fault{at("pause", 1, 2)}, []string{"open: <nil>", "lock a: token"}},
		{"a majority is gone", Plan{Backend: "quorum", Servers: 3}, 0, []Fault{at("cut", 1, 2), at("cut", 2, 2)},
			[]string{"open: dlock", "too few nodes", "open: <nil>", "lock a: token"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.plan
			p.Backend, p.Servers, p.Latency = cmp.Or(p.Backend, "redis"), cmp.Or(p.Servers, 1), time.Millisecond
			p.Names, p.TTL, p.Length, p.Faults = 1, 10*second, length, c.faults
			p.Clients = []Party{{After: 2 * second, Opens: &opening{Limit: c.limit}, Workers: [][]Op{{{Call: "lock", Names: []int{0}, Unlock: "live"}}}}}
			r := Run(t, &p)
			if len(r.Violations) > 0 {
				t.Errorf("%v\n%s", r.Violations, r.Table(1))
			}
			rest := r.History
			for _, text := range c.then {
				i := slices.IndexFunc(rest, func(e Event) bool { return strings.Contains(e.Text, text) })
				if i < 0 {
					t.Fatalf("no %q in\n%s", text, r.Table(1))
				}
				rest = rest[i:]
			}
		})
	}
}
