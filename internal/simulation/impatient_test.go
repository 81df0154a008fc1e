package simulation

import (
	"testing"
	"time"
)

// TestImpatience has a client that gives an answer up after 50 ms hold a lock for many leases, and take others
// again and again, while an answer in a hundred comes later.
func TestImpatience(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := func(name int) (all []Op) {
		for range 400 {
			all = append(all, Op{Pause: 10 * ms, Call: "lock", Names: []int{name}, Hold: 10 * ms, Unlock: "live"})
		}
		return all
	}
	for _, backend := range []string{"redis", "quorum"} {
		t.Run(backend, func(t *testing.T) {
			p := &Plan{
				Seed: 3, Backend: backend, Servers: 1, Names: 4, TTL: 3 * s / 2, Length: length, Latency: 10 * ms, Jitter: 8 * ms,
				Clients: []Party{
					{Own: &own{Timeout: impatience}, Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 50 * s, Unlock: "live"}}, ops(1), ops(2)}},
					{Own: &own{Timeout: impatience, Retries: -1}, Workers: [][]Op{ops(1), ops(3)}},
				},
			}
			if backend == "quorum" {
				p.Servers = 3
			}
			r := Run(t, p)
			if len(r.Violations) > 0 || r.Grants < 400 {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}
