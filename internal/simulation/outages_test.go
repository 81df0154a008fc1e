package simulation

import (
	"testing"
	"time"
)

// A server is away for five minutes. A lease of half an hour that is to be renewed just then outlives that, and
// who waits has the lock, one that is free soon after and one that is free much later.
func TestOutages(t *testing.T) {
	use := func(pause time.Duration, name int, hold time.Duration) []Op {
		return []Op{{Pause: pause, Call: "lock", Names: []int{name}, Hold: hold, Unlock: "live"}}
	}
	for _, kind := range []string{"pause", "restart", "loading", "cut", "hole", "half-open"} {
		t.Run(kind, func(t *testing.T) {
			p := &Plan{
				Backend: "redis", Servers: 1, Names: 2, Latency: time.Millisecond, TTL: 30 * time.Minute, Length: 2 * time.Hour,
				Clients: []Party{
					{Workers: [][]Op{use(0, 0, time.Hour), use(0, 1, 15*time.Minute)}},
					{Workers: [][]Op{use(time.Minute, 0, time.Minute), use(time.Minute, 1, time.Minute)}},
				},
				Faults: []Fault{{Kind: kind, At: 599 * time.Second, For: 5 * time.Minute, Client: -1, Way: 2}},
			}
			if r := Run(t, p); len(r.Violations) > 0 || r.Grants != 4 {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}
