package simulation

import (
	"strings"
	"testing"
	"time"
)

// TestForgottenNames has Names of a cluster meet a connection that something on the way has forgotten at
// one node after the other. Which nodes it asks who the masters are is the client library's choice.
func TestForgottenNames(t *testing.T) {
	const trip = 40 * time.Millisecond
	for range 50 {
		p := &Plan{
			Backend: "redis", Servers: 1, Names: 1, TTL: 10 * time.Second, Length: time.Minute, Latency: trip,
			Cluster: true, Replica: true, Lag: trip, Word: trip, Forgets: 20 * time.Second,
			Clients: []Party{{Workers: [][]Op{{
				{Call: "names", Names: []int{0}},
				{Pause: 30 * time.Second, Call: "names", Names: []int{0}},
				{Call: "ping", Names: []int{0}},
			}}}},
		}
		r := Run(t, p)
		if len(r.Violations) > 0 {
			t.Fatalf("%v\n%s", r.Violations, r.Table(1))
		}
		var asked, next time.Duration
		for _, e := range r.History {
			switch {
			case strings.HasPrefix(e.Text, "names") && strings.HasSuffix(e.Text, "?"):
				asked = e.At
			case strings.HasPrefix(e.Text, "ping"):
				next = e.At
			}
		}
		if next-asked > 2*firstAnswer+8*trip {
			return
		}
	}
	t.Error("Names has met no more than two")
}
