package simulation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Plans have contexts of each type, and these are as they say.
func TestForeignContexts(t *testing.T) {
	found := make(map[string]bool)
	for seed := range uint64(400) {
		g := &generator{plan: NewPlan(seed, "")}
		g.each(func(op *Op) {
			if op.Foreign != nil {
				found[op.Foreign.Type] = true
			}
		})
	}
	for _, c := range []struct {
		how  ForeignContext
		ends time.Duration // 0: never
		err  error
	}{
		{ForeignContext{Type: "own"}, time.Second, context.DeadlineExceeded},
		{ForeignContext{Type: "error"}, time.Second, errForeign},
		{ForeignContext{Type: "after"}, time.Second, context.DeadlineExceeded},
		{ForeignContext{Type: "late"}, time.Second, context.DeadlineExceeded},
		{ForeignContext{Type: "early", Beyond: time.Second}, 2 * time.Second, context.DeadlineExceeded},
		{ForeignContext{Type: "silent"}, 0, nil},
		{ForeignContext{Type: "endless"}, 0, nil},
	} {
		if !found[c.how.Type] {
			t.Errorf("no plan has a context of type %s", c.how.Type)
		}
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			foreign := (&Op{Foreign: &c.how}).foreign(ctx)
			at, limited := foreign.Deadline()
			want := began.Add(time.Second)
			if c.how.Type == "late" {
				want = want.Add(time.Hour)
			}
			if limited != (c.how.Type != "endless") || limited && at != want {
				t.Errorf("%s: its deadline is %v, %v", c.how.Type, at, limited)
			}
			child, stop := context.WithCancel(foreign)
			defer stop()
			select {
			case <-child.Done():
			case <-time.After(time.Hour):
			}
			took := time.Since(began)
			synctest.Wait()
			if c.ends > 0 && took != c.ends || c.ends == 0 && took < time.Hour || !errors.Is(child.Err(), c.err) || !errors.Is(foreign.Err(), c.err) {
				t.Errorf("%s: it ended after %v with %v, and one made from it with %v", c.how.Type, took, foreign.Err(), child.Err())
			}
		})
	}
}

// Calls of all sorts are made with contexts of each type, and end as they are to, where servers are silent, too.
func TestCallsWithForeignContexts(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, backend := range []string{"redis", "quorum", "memory"} {
		for _, f := range []ForeignContext{{Type: "own"}, {Type: "error"}, {Type: "after"}, {Type: "late"}, {Type: "early", Beyond: 300 * ms}, {Type: "silent"}, {Type: "endless"}} {
			t.Run(backend+"/"+f.Type, func(t *testing.T) {
				op := func(call string) Op {
					return Op{Call: call, Names: []int{0}, Wait: 400 * ms, Hold: 300 * ms, Unlock: "short", Limit: 200 * ms, Foreign: &f}
				}
				ops := []Op{op("trylock"), op("tryrlock"), op("do"), op("lock"), op("rlock")}
				ops[2].Adapter = true
				ops[3].MaxWait, ops[4].MaxWait = s, s
				if f.Type == "endless" {
					for i := range ops {
						ops[i].Wait = 0
					}
				}
				ops[0].Inside = []Op{op("trylock")}
				if f.Type != "silent" && f.Type != "endless" {
					ops = append(ops, op("inspect"), op("ping"))
				}
				p := usesOf(Party{Workers: [][]Op{ops, ops}}, Party{Workers: [][]Op{ops, ops}, Own: &own{}})
				if p.Backend, p.Names = backend, 1; backend == "quorum" {
					p.Servers = 3
				}
				if backend == "memory" {
					p.Clients[1].Own = nil
				} else {
					p.Faults = []Fault{{Kind: "pause", At: s, For: 2 * s, Client: -1}, {Kind: "hole", At: 4 * s, For: 2 * s, Client: -1, Server: everywhere, Way: 2}}
				}
				runUses(t, p)
			})
		}
	}
}
