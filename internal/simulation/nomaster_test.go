package simulation

import (
	"slices"
	"testing"
	"time"
)

// TestSentinelsThatKnowNoMaster has Sentinels know no master while connections end: what is asked for meanwhile is
// had when they do, within the time of a first answer, and else fails; and no lease is lost that outlasts it. A
// part of all plans has that.
func TestSentinelsThatKnowNoMaster(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	ops := slices.Repeat([]Op{{Pause: 300 * ms, Call: "lock", Names: []int{0}, Hold: 100 * ms, Unlock: "live"}}, 80)
	keeps := []Op{{Call: "lock", Names: []int{1}, Hold: 55 * s, Unlock: "live"}}
	for name, f := range map[string]Fault{
		"at first":              {For: 2 * s, Way: 2},
		"they cannot tell":      {For: 2 * s, Way: 2, Steps: 1, At: 20 * s},
		"there is none":         {For: 2 * s, Way: 2, At: 20 * s},
		"one of three knows it": {For: 20 * s, Way: 1, At: 20 * s},
		"for longer than calls wait for a first answer": {For: 6 * s, Way: 2, At: 20 * s},
	} {
		t.Run(name, func(t *testing.T) {
			f.Kind, f.Client = "no-master", -1
			p := &Plan{
				Seed: 4, Backend: "redis", Servers: 1, Names: 2, TTL: 10 * s, Length: length, Latency: ms, Replica: true, Sentinels: true,
				Clients: []Party{{Workers: [][]Op{ops, keeps}}, {Workers: [][]Op{ops}}},
				Faults:  []Fault{f, {Kind: "reset", At: f.At + 500*ms, Client: -1}},
			}
			r := Run(t, p)
			fails := f.Way == 2 && f.For > firstAnswer
			if len(r.Violations) > 0 || r.says("unavailable") != fails || r.says("b over") {
				t.Errorf("%d grants, %v\n%s", r.Grants, r.Violations, r.Table(2))
			}
		})
	}
	if n := plansWith("no-master"); n < 5 || n > 50 {
		t.Errorf("%d of 1000 plans have Sentinels that know no master", n)
	}
}
