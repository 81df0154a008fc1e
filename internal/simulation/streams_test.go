package simulation

import (
	"testing"
	"time"
)

// Plans have clients that are told of their credentials, and these log in anew on the connections that they have.
func TestStreams(t *testing.T) {
	const s = time.Second
	found, refreshed, rotated := false, false, false
	for seed := range uint64(1000) {
		p := NewPlan(seed, "")
		for i, c := range p.Clients {
			if c.Own == nil || !c.Own.Streams {
				continue
			}
			found, rotated = true, rotated || p.Rotates
			for _, f := range p.Faults {
				refreshed = refreshed || f.Kind == "refresh" && f.Client == i
			}
		}
	}
	if !found || !refreshed || !rotated {
		t.Errorf("clients that are told of credentials: %v; of new ones: %v, also where the password changes: %v", found, refreshed, rotated)
	}
	var ops []Op
	for range 200 {
		ops = append(ops, Op{Pause: 20 * time.Millisecond, Call: "lock", Names: []int{0}, Hold: 20 * time.Millisecond, Unlock: "live"})
	}
	for _, backend := range []string{"redis", "quorum", "cluster"} {
		for _, size := range []int{0, 1} {
			for _, rotates := range []bool{false, true} {
				t.Run(backend, func(t *testing.T) {
					p := usesOf(Party{Own: &own{Streams: true, PoolSize: size}, Workers: [][]Op{ops, ops, ops}}, Party{Own: &own{}, Workers: [][]Op{ops}})
					p.Rotates = rotates
					for i := range 8 {
						p.Faults = append(p.Faults, Fault{Kind: "refresh", At: time.Duration(1+i) * s, Client: 0})
					}
					if rotates {
						p.Faults = append(p.Faults, Fault{Kind: "rotate", At: 4500 * time.Millisecond, Client: -1, For: s, Way: 2})
					}
					switch backend {
					case "quorum":
						p.Servers = 3
						p.Backend = backend
					case "cluster":
						p.Cluster, p.Replica = true, true
					}
					if r := runUses(t, p); r.Coverage[anew] < 8 || r.Grants < 400 {
						t.Errorf("%d logins were repeated, and there were %d leases", r.Coverage[anew], r.Grants)
					}
				})
			}
		}
	}
}
