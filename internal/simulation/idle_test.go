package simulation

import (
	"slices"
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

// What a client sends on connections that something on the way has forgotten is lost, also where the server has ended
// them since, which the client does not hear of.
func TestForgottenAndEnded(t *testing.T) {
	lock := func(pause time.Duration, name int) Op {
		return Op{Pause: pause, Call: "lock", Names: []int{name}, Unlock: "live"}
	}
	met := false
	for range 10 {
		p := &Plan{
			Backend: "redis", Servers: 1, Names: 4, TTL: 30 * time.Second, Length: 3 * time.Minute, Latency: 10 * time.Millisecond,
			Forgets: 50 * time.Second, Ends: time.Minute,
			Clients: []Party{{Own: &own{}, Workers: [][]Op{
				{lock(0, 0), lock(100*time.Second, 0)}, {lock(0, 1)}, {lock(5*time.Millisecond, 2)}, {lock(10*time.Millisecond, 3)},
			}}},
		}
		r := Run(t, p)
		if len(r.Violations) > 0 {
			t.Fatalf("%v\n%s", r.Violations, r.Table(1))
		}
		met = met || slices.ContainsFunc(r.History, func(e Event) bool { return strings.Contains(e.Text, "no answer within") })
	}
	if !met {
		t.Error("every lock was taken at once")
	}
}
