package simulation

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// Sentinels know no master of a name for a time, as those do that were started again without what they knew, or
// whose operator takes a master away and has them watch it anew: they say that there is none, or that they
// cannot tell. Nothing is wrong with the master, nor with connections to it.

func init() {
	maps.Copy(furtherKinds, map[string]touch{"no-master": {loses: true, fails: true}})
	kinds["no-master"] = furtherKinds["no-master"]
	keepsConnections = append(keepsConnections, "no-master")
}

// ignorance is what a Sentinel says then; nil: nothing.
var ignorance = []error{nil, replyError("IDONTKNOW I have not enough information to reply. Please ask another Sentinel."), nil}

// ignorant has the Sentinels of a part of the plans know no master, at first or later, while connections to that
// end: nobody asks else.
func (g *generator) ignorant() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 240))}
	p := g.plan
	if !p.Sentinels || len(p.Faults) == 0 || !g.often(25) {
		return
	}
	if g.often(50) {
		p.Faults = nil
	}
	for range 1 + g.IntN(3) {
		f := Fault{Kind: "no-master", At: g.within(0, p.Length), For: g.lasting(), Client: -1, Way: g.IntN(3), Steps: g.IntN(len(ignorance))}
		if g.often(30) {
			f.At = 0
		}
		p.Faults = append(p.Faults, f)
		end := Fault{Kind: pick(g.draw, "reset", "kill-requests", "kill-one", "failover", "restart"), At: f.At + g.within(0, f.For), Client: -1, Way: 2}
		if f.At > 0 || g.often(50) {
			p.Faults = append(p.Faults, end)
		}
	}
}

// ignores has Sentinels know no master until then: all, or all but one.
func (w *world) ignores(f Fault, end time.Time) {
	for i, s := range w.sentinels {
		if f.Way == 2 || i != 0 {
			s.mu.Lock()
			s.until, s.says = end, ignorance[f.Steps]
			s.mu.Unlock()
		}
	}
}

// knowsNoMaster reports whether all Sentinels have known none at some time since then.
func (r *register) knowsNoMaster(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "no-master" && t.to.After(since) })
}

// isUnknownMaster reports whether a look at the servers may have been told that the name of the master is wrong.
func (r *register) isUnknownMaster(c *call, err error) bool {
	return c.what == "examine" && errors.Is(err, dlock.ErrInvalidConfig) && r.knowsNoMaster(c.start)
}
