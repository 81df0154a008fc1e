package simulation

import (
	"testing"
	"time"
)

// TestWallSet has the wall clock of a client's machine be set while the client has a lock: forward by less than a lease,
// and back by days, it keeps that; forward by more than a lease it has lost it. A part of all plans has that.
func TestWallSet(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for name, c := range map[string]struct {
		fault Fault
		lost  bool
	}{
		"on by less":      {Fault{Kind: wallOn, For: 2 * s}, false},
		"on by a lease":   {Fault{Kind: wallOn, For: 10*s + ms}, true},
		"on by an hour":   {Fault{Kind: wallOn, For: time.Hour}, true},
		"back by a lease": {Fault{Kind: wallBack, For: 10*s + ms}, false},
		"back by days":    {Fault{Kind: wallBack, For: 72 * time.Hour}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.fault.At, c.fault.Client = 21300*ms, -1
			r := Run(t, &Plan{
				Backend: "redis", Servers: 1, Seed: 4, Names: 1, TTL: 10 * s, Length: length, Latency: ms, Faults: []Fault{c.fault},
				Clients: []Party{{Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 40 * s, Unlock: "live"}}}}},
			})
			if lost := r.says("a over"); len(r.Violations) > 0 || lost != c.lost {
				t.Errorf("lost: %v, %v\n%s", lost, r.Violations, r.Table(1))
			}
		})
	}
	for _, kind := range []string{wallOn, wallBack} {
		if n := plansWith(kind); n < 5 || n > 50 {
			t.Errorf("%d of 1000 plans have %s", n, kind)
		}
	}
}
