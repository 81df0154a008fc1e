package simulation

import (
	"testing"
	"time"
)

// What says that a hold or a place is gone is understood.
func TestIsGone(t *testing.T) {
	acquire, release := firstLines["acquire"], firstLines["release"]
	keys := newKeys("a", "", ":r", ":q", ":a", ":x")
	for what, c := range map[string]struct {
		source string
		reply  any
		gone   bool
	}{
		"a place":            {acquire, []any{"GONE", int64(5)}, true},
		"an id given up":     {acquire, []any{"DEAD", int64(5)}, false},
		"a place that is":    {acquire, []any{"QUEUED", int64(5), int64(5), int64(0), int64(5), int64(1)}, false},
		"a try":              {acquire, []any{"HELD", int64(5), int64(0)}, false},
		"a hold":             {release, []any{"NOT_HELD", int64(0)}, true},
		"a hold that was":    {release, int64(0), false},
		"a renewal":          {tellers["renew"], []any{int64(5), int64(9), int64(1), int64(0)}, true},
		"a renewal of all":   {tellers["renew"], []any{int64(5), int64(9)}, false},
		"a look at the lock": {firstLines["check"], []any{"GONE", int64(5)}, false},
	} {
		if gone := isGone(c.source, keys, []string{"5", "900", "w1"}, c.reply); gone != c.gone {
			t.Errorf("%s: %t", what, gone)
		}
	}
}

// A master is demoted while a client waits over connections that live on. The next master, where that
// client does not listen, passes it over, and the one of before refuses to say so.
func TestDemoted(t *testing.T) {
	op := func(pause, hold time.Duration) Party {
		return Party{Workers: [][]Op{{{Pause: pause, Call: "lock", Names: []int{0}, Hold: hold, Unlock: "live"}}}}
	}
	r := Run(t, &Plan{
		Backend: "redis", Servers: 1, Latency: time.Millisecond, Names: 1, TTL: 30 * time.Second, Length: length, Replica: true, Lag: time.Millisecond,
		Clients: []Party{op(0, 4*time.Second), op(time.Second, time.Second)},
		Faults:  []Fault{{Kind: "failover", At: 2 * time.Second, Client: -1, Way: 2}},
	})
	if len(r.Violations) > 0 || r.Coverage["a replica refuses × acquire"] == 0 {
		t.Errorf("%v\n%s", r.Violations, r.Table(2))
	}
}
