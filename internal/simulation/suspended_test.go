package simulation

import (
	"testing"
	"time"
)

// TestSuspended has the machine of a client be suspended with its monotonic clock while the client has a lock: for
// less than a lease it keeps that, and for longer it has lost it as soon as it is asked, before anybody else gets it.
// A part of all plans has that.
func TestSuspended(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for name, backend := range map[string]*Plan{
		"one server": {Backend: "redis", Servers: 1},
		"a quorum":   {Backend: "quorum", Servers: 3},
		"a cluster":  {Backend: "redis", Servers: 1, Cluster: true, Replica: true, Lag: ms, Word: ms},
	} {
		for _, d := range []time.Duration{2 * s, 10*s + ms, time.Minute} {
			t.Run(name+", "+d.String(), func(t *testing.T) {
				p := *backend
				p.Seed, p.Names, p.TTL, p.Length, p.Latency = 4, 1, 10*s, length, ms
				p.Clients = []Party{{Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 40 * s, Unlock: "live"}}}}}
				p.Faults = []Fault{{Kind: "suspend", At: 21300 * ms, For: d, Client: -1}}
				r := Run(t, &p)
				if lost := r.says("a over"); len(r.Violations) > 0 || lost != (d > 10*s) {
					t.Errorf("lost: %v, %v\n%s", lost, r.Violations, r.Table(1))
				}
			})
		}
	}
	if n := plansWith("suspend"); n < 5 || n > 50 {
		t.Errorf("%d of 1000 plans have a machine that is suspended", n)
	}
}
