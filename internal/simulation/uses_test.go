package simulation

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// usesOf is a plan of one client or two that use one lock.
func usesOf(clients ...Party) *Plan {
	return &Plan{
		Backend: "redis", Servers: 1, Names: 1, TTL: 3 * time.Second, Length: 12 * time.Second, Latency: time.Millisecond, Clients: clients,
	}
}

func runUses(t *testing.T, p *Plan) *Result {
	t.Helper()
	if os.Getenv("SIMULATION_WORKER") != "" {
		t.Skip("a worker runs the plans it is sent")
	}
	r := Run(t, p)
	for _, v := range r.Violations {
		t.Errorf("%s: %s", v.Rule, v.Text)
	}
	if t.Failed() {
		t.Log(r.Table(len(p.Clients)))
	}
	return r
}

// A client is closed with each context that there is, twice at once, and again, also where the server is silent.
func TestClosings(t *testing.T) {
	held := [][]Op{{{Call: "lock", Names: []int{0}, Hold: 8 * time.Second, Unlock: "live"}}}
	for _, limit := range []time.Duration{0, 3 * time.Millisecond, 4 * time.Second} {
		for i := range 8 {
			how := &Closing{Leased: i&1 > 0, Cancel: i&2 > 0, Outer: i&4 > 0, Limit: limit, Twice: i&1 > 0, Again: time.Millisecond}
			p := usesOf(Party{Close: 2 * time.Second, Closing: how, Workers: held})
			runUses(t, p)
			p.Faults = []Fault{{Kind: "pause", At: 1900 * time.Millisecond, For: 9 * time.Second, Client: -1}}
			runUses(t, p)
		}
	}
}

// A client waits under the lease of another for what that holds, and enters its own locks again.
func TestAcross(t *testing.T) {
	again := Op{Call: "lock", Names: []int{0}, Wait: time.Second, Unlock: "live", Uses: Uses{By: 1}}
	other := Op{Call: "rlock", Names: []int{1}, Wait: time.Second, Unlock: "live", Uses: Uses{By: 2}, Inside: []Op{again}}
	same := Op{Call: "lock", Names: []int{0}, Wait: 100 * time.Millisecond, Uses: Uses{By: 2}}
	p := usesOf(
		Party{Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: time.Second, Unlock: "live", Inside: []Op{other, same}}}}},
		Party{},
	)
	p.Names = 2
	if r := runUses(t, p); r.Grants != 3 {
		t.Errorf("%d leases, want 3", r.Grants)
	}
}

// A lease that nobody refers to is found, and its lock stays held.
func TestDrops(t *testing.T) {
	drop := Op{Call: "lock", Names: []int{0}, Hold: 6 * time.Second, Unlock: "live", Uses: Uses{Drops: true}}
	if r := runUses(t, usesOf(Party{Logs: true, Workers: [][]Op{{drop}}})); r.Coverage["a lease dropped"] != 1 {
		t.Errorf("%v", r.Coverage)
	}
}

// Who downgrades a lease under that of another client may hear that this one is closed.
func TestDowngradeAcross(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	inside := Op{Call: "lock", Names: []int{1}, Wait: s, Hold: 400 * ms, Downgrade: true, Unlock: "live", Uses: Uses{By: 2}}
	p := usesOf(
		Party{Close: 1200 * ms, Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 2 * s, Unlock: "live", Inside: []Op{inside}}}}},
		Party{},
	)
	p.Names, p.Latency = 2, 10*ms
	r := runUses(t, p)
	if !slices.ContainsFunc(r.History, func(e Event) bool { return strings.HasPrefix(e.Text, "downgrade [b]: dlock: client is closed") }) {
		t.Error(r.Table(len(p.Clients)))
	}
}
