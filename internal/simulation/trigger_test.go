package simulation

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The scripts that faults wait for are those of the library, each known by how it begins.
func TestScriptsAreKnown(t *testing.T) {
	for name := range firstLines {
		source, err := os.ReadFile("../../backend/redis/lua/" + name + ".lua")
		if err != nil {
			t.Error(err)
		}
		if got := scriptOf(string(source)); got != name {
			t.Errorf("%s is taken for %q", name, got)
		}
	}
}

// A fault happens at the moment that it waits for, once, and before, between or after what the server does
// then.
func TestTriggers(t *testing.T) {
	const hold = 2 * time.Second
	for _, c := range []struct {
		name  string
		fault Fault
		then  []string // what the history has, in that order
	}{
		{"an answer is lost with its client", Fault{Kind: "kill-client", Client: -1, Trigger: &trigger{Script: "grants", Nth: 2, When: beforeAnswer}},
			[]string{"c0 until", "lock a: token", "c0 until", "kill-client at grants unanswered of c0", "lock [a]?", "c1 until"}},
		{"who is let in dies as it is told", Fault{Kind: "kill-client", Client: -1, Trigger: &trigger{Script: "grants", Nth: 3, When: afterAnswer, Next: true}},
			[]string{"queue [w:c1]", "c1 until", "kill-client at grants answered of c0", "kill-client c1"}},
		{"a release comes to a server without data", Fault{Kind: "flush", Client: -1, Trigger: &trigger{Script: "drop", Nth: 1, When: beforeEffect}},
			[]string{"unlock [a]?", "flush at drop before of c0", "s0 a: nobody, token 0"}},
		{"a server forgets what it has just said", Fault{Kind: "restart-old", Client: -1, Trigger: &trigger{Script: "grants", Nth: 2, When: afterAnswer, Gently: true}},
			[]string{"c0 until", "nobody", "c0 until", "restart-old at grants answered of c0", "s0 a: nobody", "lock a: token"}},
		{"who waits gives up as it is let in", Fault{Kind: "give-up", Client: -1, Trigger: &trigger{Script: "grants", Nth: 3, When: beforeAnswer, Next: true}},
			[]string{"queue [w:c1]", "c1 until", "give-up at grants unanswered of c0", "context canceled"}},
		{"a lock is taken away before it is renewed", Fault{Kind: "break", Client: -1, Trigger: &trigger{Script: "renew", Nth: 1, When: beforeEffect}},
			[]string{"break at renew before of c0", "c1 until", "a over: dlock: lock was lost"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Plan{
				Backend: "redis", Servers: 1, Latency: time.Millisecond, Names: 1, TTL: 3 * time.Second, Length: 20 * time.Second,
				Clients: []Party{
					{Workers: [][]Op{{
						{Call: "lock", Names: []int{0}, Unlock: "live"},
						{Pause: time.Second, Call: "lock", Names: []int{0}, Hold: hold, Unlock: "live"},
					}}},
					{Workers: [][]Op{{{Pause: 1500 * time.Millisecond, Call: "lock", Names: []int{0}, Hold: hold, Unlock: "live"}}}},
				},
				Faults: []Fault{c.fault},
			}
			r := Run(t, p)
			if len(r.Violations) > 0 {
				t.Errorf("%v\n%s", r.Violations, r.Table(len(p.Clients)))
			}
			rest := r.History
			for _, text := range c.then {
				i := slices.IndexFunc(rest, func(e Event) bool { return strings.Contains(e.Text, text) })
				if i < 0 {
					t.Fatalf("no %q in\n%s", text, r.Table(len(p.Clients)))
				}
				rest = rest[i+1:]
			}
		})
	}
}
