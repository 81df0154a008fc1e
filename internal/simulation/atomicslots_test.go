package simulation

import (
	"slices"
	"testing"
	"time"
)

// TestAtomicSlots has the slot of a lock move with all its keys at one moment, there and back, while it is held,
// waited for and taken: no lease is lost, no call waits for longer than the pause, and nobody is told that it is
// on its way. A part of all clusters has that.
func TestAtomicSlots(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 20 * ms, Call: "lock", Names: []int{0}, Hold: 200 * ms, Unlock: "live"}}, 120)
	p := &Plan{
		Seed: 4, Backend: "redis", Servers: 1, Names: 2, TTL: 10 * s, Length: length, Latency: ms, Trace: true,
		Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms, Atomic: true,
		Clients: []Party{{Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}, {Workers: [][]Op{ops}}},
	}
	for _, at := range []time.Duration{3 * s, 11 * s, 19 * s, 27 * s, 35 * s} {
		p.Faults = append(p.Faults, Fault{Kind: "slot-move", At: at, For: s, Client: -1, Server: homeOf(slotOf(lockKey("a"))), Way: 2, Size: s})
	}
	r := Run(t, p)
	if len(r.Violations) > 0 || r.Grants < 200 || !r.says("MOVED") || !r.says("slot 15495 is in shard") || r.says("ASK ") || r.says("TRYAGAIN") || r.says("unavailable") || r.says(" over") {
		t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(len(p.Clients)))
	}
	if n := plansWhere(func(p *Plan) bool { return p.Atomic }); n < 10 || n > 80 {
		t.Errorf("%d of 1000 plans have slots that move at one moment", n)
	}
}
