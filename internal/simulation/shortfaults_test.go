package simulation

import (
	"testing"
	"time"
)

// What is short beside a lease excuses no loss of it, unless it does harm at once.
func TestShortFaultsAreNoExcuse(t *testing.T) {
	p := &Plan{Backend: "redis", Servers: 1, TTL: 30 * time.Second, Latency: time.Millisecond}
	for what, c := range map[string]struct {
		kind  string
		lasts time.Duration
		times int
		ttl   time.Duration
		may   bool
	}{
		"a short restart":                        {"restart", time.Second, 1, p.TTL, false},
		"a short restart, of a short lease":      {"restart", time.Second, 1, 3 * time.Second, true},
		"a long restart":                         {"restart", 9 * time.Second, 1, p.TTL, true},
		"a long restart, of a lease of hours":    {"restart", 9 * time.Minute, 1, time.Hour, false},
		"many short ones":                        {"busy", time.Second, 4, p.TTL, true},
		"a reset, of a lease that it cannot end": {"reset", 0, 1, p.TTL, false},
		"data that is lost":                      {"flush", 0, 1, p.TTL, true},
		"a client that is killed":                {"kill-client", 0, 1, p.TTL, true},
	} {
		r := &register{w: &world{plan: p}}
		from := time.Now().Add(-time.Minute)
		for range c.times {
			r.touches = append(r.touches, touched{kind: c.kind, client: -1, from: from, to: from.Add(c.lasts)})
		}
		if may := r.mayHaveCost(0, from.Add(-time.Second), c.ttl); may != c.may {
			t.Errorf("%s: %v", what, may)
		}
	}
}

// A part of the plans has faults that are shorter than leases, and another has some that last for minutes.
func TestLengthsOfFaults(t *testing.T) {
	short, long, absent := 0, 0, 0
	for seed := range uint64(200) {
		for _, backend := range []string{"redis", "quorum"} {
			p := NewPlan(seed, backend)
			longest := time.Duration(0)
			for _, f := range p.Faults {
				longest = max(longest, f.For)
			}
			switch {
			case p.isLonger() && 2*longest > p.Length && p.Servers > 1:
				absent++
			case p.isLonger() && longest > 2*time.Minute:
				long++
			case len(p.Faults) > 2 && p.TTL >= 10*time.Second && longest < p.TTL/3:
				short++
			}
		}
	}
	if short < 5 || long < 5 || absent < 2 {
		t.Errorf("short faults in %d plans, long ones in %d, a member that is away in %d", short, long, absent)
	}
}
