package simulation

import (
	"testing"
	"time"
)

// Plans in which nothing goes wrong have calls whose requests and round trips are counted, and all of them
// take as few as they may.
func TestTrips(t *testing.T) {
	ms := time.Millisecond
	use := func(call string, pause, hold time.Duration) Op {
		return Op{Pause: pause, Call: call, Names: []int{0}, Hold: hold, Unlock: "live"}
	}
	again := func(n int, ops ...Op) (all []Op) {
		for range n {
			all = append(all, ops...)
		}
		return all
	}
	waits := []Party{
		{Workers: [][]Op{again(10, use("lock", 2*time.Second, 2*time.Second))}},
		{Workers: [][]Op{again(10, use("lock", 2*time.Second, 3*time.Second))}},
		{Workers: [][]Op{again(10, use("rlock", time.Second, time.Second))}},
	}
	asks := Party{Asks: true, Workers: [][]Op{again(10, use("inspect", time.Second, 0), use("ping", time.Second, 0), use("names", time.Second, 0))}}
	inTurn := again(20, use("lock", 5*ms, 20*ms))
	for name, c := range map[string]struct {
		plan Plan
		has  []string // what the plan has many of
	}{
		"a client passes a lock on among its own goroutines": {
			Plan{Clients: []Party{
				{Workers: [][]Op{append(append([]Op{use("lock", 0, 0), use("lock", 6*time.Second, 0), use("lock", 10*time.Second, 0)}, inTurn...), again(9, use("rlock", 200*ms, 300*ms))...), append([]Op{use("lock", 16120*ms, 0)}, inTurn...)}},
				{Workers: [][]Op{{use("lock", 5900*ms, 200*ms)}}},
			}},
			[]string{"passed on × lock"},
		},
		"readers of a client share a hold": {
			Plan{Clients: []Party{{Workers: [][]Op{
				{use("lock", 6*time.Second, 0), use("rlock", 10*time.Second, 40*time.Second)},
				again(10, use("rlock", 3*time.Second, 100*ms)),
			}}, {Workers: [][]Op{{use("lock", 5900*ms, 200*ms)}}}}},
			[]string{"passed on × rlock"},
		},
		"waits of one server":    {Plan{Clients: waits}, []string{"in order × wait"}},
		"waits of a cluster":     {Plan{Cluster: true, Replica: true, Lag: 10 * ms, Clients: waits}, []string{"in order × wait"}},
		"waits of a quorum":      {Plan{Backend: "quorum", Servers: 3, Clients: waits}, []string{"in order × wait"}},
		"questions of a server":  {Plan{Clients: append(waits[:2:2], asks)}, []string{"in order × inspect", "in order × ping", "in order × names"}},
		"questions of a cluster": {Plan{Cluster: true, Replica: true, Lag: 10 * ms, Clients: append(waits[:2:2], asks)}, []string{"in order × inspect", "in order × ping", "in order × names"}},
		"questions of a quorum":  {Plan{Backend: "quorum", Servers: 3, Clients: []Party{asks}}, []string{"in order × inspect", "in order × ping", "in order × names"}},
		"free locks of a quorum": {Plan{Backend: "quorum", Servers: 3, Latency: 40 * ms, Jitter: 10 * ms, Clients: []Party{{Workers: [][]Op{again(20, use("lock", 2300*ms, 10*ms))}}}}, []string{"in order × free"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &c.plan
			p.Names, p.TTL, p.Length = 1, 10*time.Second, length
			if p.Servers == 0 {
				p.Backend, p.Servers = "redis", 1
			}
			if p.Latency == 0 {
				p.Latency = ms
			}
			r := Run(t, p)
			if len(r.Violations) > 0 {
				t.Errorf("%v\n%s", r.Violations, r.Table(len(p.Clients)))
			}
			for _, what := range c.has {
				if n := r.Coverage[what]; n < 5 {
					t.Errorf("%s: %d, of %v", what, n, r.Coverage)
				}
			}
		})
	}
}
