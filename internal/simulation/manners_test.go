package simulation

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// mannered is a plan of two clients in which each hook of the first is called: it waits for the other and for
// itself, renews, fails to, loses a lock and is closed with one.
func mannered(m Manners, hooks string) *Plan {
	ms, s := time.Millisecond, time.Second
	first := Party{Hooks: hooks, Logs: true, Manners: m, Workers: [][]Op{
		{
			{Pause: s, Call: "lock", Names: []int{0}, Hold: 2 * s, Unlock: "live"},
			{Call: "trylock", Names: []int{1}, Unlock: "live"},
			{Call: "lock", Names: []int{0}, Hold: 20 * s, Unlock: "live"},
		},
		{{Pause: 2 * s, Call: "lock", Names: []int{0}, Hold: 100 * ms, Unlock: "live"}},
		{{Pause: 3 * s, Call: "lock", Names: []int{2}, Hold: 20 * s, Unlock: "live"}},
		{{Pause: 20 * s, Call: "multi", Names: []int{3, 4}, Unlock: "live", Forget: true}},
		{{Pause: 4 * s, Call: "rlock", Names: []int{3}, Hold: 14 * s, Unlock: "live"}},
	}}
	other := Party{Workers: [][]Op{
		{{Call: "lock", Names: []int{0}, Hold: 3 * s, Unlock: "live"}},
		{{Call: "lock", Names: []int{1}, Hold: 50 * s, Unlock: "live"}},
	}}
	return &Plan{
		Seed: 1, Backend: "redis", Servers: 1, Names: 5, TTL: 3 * s, Length: length, Latency: ms,
		Clients: []Party{first, other},
		Faults:  []Fault{{Kind: "pause", At: 9 * s, For: 1700 * ms, Client: -1}, {Kind: "flush", At: 15 * s, Client: -1}},
	}
}

func (r *Result) must(t *testing.T, what string) {
	t.Helper()
	if len(r.Violations) > 0 {
		t.Errorf("%s: %v\n%s", what, r.Violations, r.Table(2))
	}
}

// A hook that does not return, or that calls its client, holds up nothing but what is documented.
func TestHooksThatHang(t *testing.T) {
	for _, hook := range allHooks {
		for _, d := range []time.Duration{0, 4 * time.Second} {
			r := Run(t, mannered(Manners{Hangs: &hanging{Hook: hook, For: d}}, "slow"))
			r.must(t, hook)
			if r.Coverage["a hook does not return × "+hook] != 1 {
				t.Log(r.Table(2))
				t.Errorf("%s was not called", hook)
			}
		}
		var calls []hookCall
		for i, call := range []string{"trylock", "lock", "inspect", "names"} {
			op := Op{Call: call, Names: []int{i}, Unlock: "live"}
			if call == "lock" {
				op.Wait = time.Second
			}
			calls = append(calls, hookCall{Hook: hook, Op: op})
		}
		Run(t, mannered(Manners{Calls: calls}, "slow")).must(t, hook+" calls")
	}
}

// A hook that ends its goroutine ends the call, and no other.
func TestHooksThatExit(t *testing.T) {
	for seed := range uint64(5) {
		p := mannered(Manners{Exits: true}, "panic")
		p.Seed = seed
		for i := range p.Clients[0].Workers {
			w := &p.Clients[0].Workers[i]
			*w = slices.Concat(*w, *w, *w)
		}
		Run(t, p).must(t, "exits")
	}
}

// A logger that does not return holds up no lock.
func TestLoggersThatHang(t *testing.T) {
	for _, d := range []time.Duration{0, 4 * time.Second} {
		Run(t, mannered(Manners{Stuck: &hanging{For: d}}, "count")).must(t, "the logger hangs")
	}
}

// A call goes on when the last of several hooks that hold it up has returned, whichever began first.
func TestHooksHoldUpOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bound := time.Now().Add(time.Second)
		c := &call{bound: bound}
		c.stops()
		time.Sleep(time.Minute)
		c.stops()
		time.Sleep(time.Minute)
		if c.goesOn(); !c.bound.IsZero() {
			t.Errorf("a hook has not returned, and the call is to end in %v", time.Until(c.bound))
		}
		time.Sleep(time.Minute)
		if c.goesOn(); !c.bound.Equal(bound.Add(3 * time.Minute)) {
			t.Errorf("it is to end in %v", time.Until(c.bound))
		}
	})
}
