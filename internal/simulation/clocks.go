package simulation

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/quorum"
)

// A nudge is a step of the clock of one member of a quorum, as when NTP sets it: all clocks stay within
// what the quorum allows for. A part of a lease that is there ends earlier by as much, or later.
func init() {
	furtherKinds["nudge"] = touch{}                // it is less than the part of a lease that nobody counts on
	furtherKinds["nudge-far"] = touch{loses: true} // it is more
	kinds["nudge"], kinds["nudge-far"] = furtherKinds["nudge"], furtherKinds["nudge-far"]
}

// mostDrift is how fast a clock goes wrong at most.
const mostDrift = 2e-4

// clocks has the clocks of the members of a quorum drift apart, each at a rate of its own, and be set in
// a part of the plans. All that moves a clock shares what the quorum allows for.
func (g *generator) clocks() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 58))}
	p := g.plan
	if p.Backend != "quorum" || !g.often(40) {
		return
	}
	half := cmp.Or(p.Skew, quorum.DefaultSkew) / 2
	steps := len(p.Faults) > 0 && g.often(50)
	if steps {
		p.Skews = nil
		g.nudges(half * 3 / 4)
	}
	for i := range p.Skews {
		p.Skews[i] = p.Skews[i] * 3 / 4
	}
	most := min(mostDrift, (half/4).Seconds()/(p.Length+grace+2*time.Minute).Seconds())
	p.Drift = 0
	for range 2 * p.Servers {
		p.Drifts = append(p.Drifts, most*(2*g.Float64()-1))
	}
}

// nudges has clocks be set, each within a bound of the right time: mostly one, in half of the plans
// while nothing else goes wrong.
func (g *generator) nudges(most time.Duration) {
	p := g.plan
	if g.often(40) {
		p.Faults = nil
	}
	var wrong []time.Duration
	for range p.Servers {
		wrong = append(wrong, 0)
	}
	one := g.IntN(p.Servers)
	var moments []time.Duration
	for range 1 + g.IntN(6) {
		moments = append(moments, g.within(0, p.Length))
	}
	slices.Sort(moments)
	for _, at := range moments {
		s, to := one, g.within(-most, most)
		if g.often(20) {
			s = g.IntN(p.Servers)
		}
		p.Faults = append(p.Faults, Fault{Kind: "nudge", At: at, Client: -1, Server: s, Size: to - wrong[s]})
		wrong[s] = to
	}
}

// driftOf is how fast the clock of a server goes wrong.
func (p *Plan) driftOf(server int) float64 {
	if server < len(p.Drifts) {
		return p.Drifts[server]
	}
	return p.Drift
}

// fastest is by how much the fastest clock of a server is too fast.
func (p *Plan) fastest() float64 {
	return max(0, slices.Max(append(slices.Clone(p.Drifts), p.Drift)))
}

// wanders is by how much the clock of a server may be set back at most.
func (p *Plan) wanders() time.Duration {
	if p.has("nudge") {
		return cmp.Or(p.Skew, quorum.DefaultSkew)
	}
	return 0
}

// rounding is what the clocks of a client and a server lose by counting in ms.
const rounding = 3 * time.Millisecond

// spare is the part of a lease that its holder does not count on.
func spare(lease time.Duration) time.Duration {
	return backend.Margin(min(lease, grantTime)) - rounding
}

// nudged takes a step of the clock of a member.
func (r *register) nudged(f Fault, t touched) []touched {
	t.client, t.to = -1, t.from
	if f.Size > spare(r.least) {
		t.kind = "nudge-far"
	}
	n := nudge{r.w.master(f.Server), t.from, f.Size}
	r.nudges = append(r.nudges, n)
	for _, b := range r.beliefs {
		if r.keeps(n.server, b) {
			b.dock(n)
		}
	}
	return []touched{t}
}

// A nudge is a step of a clock.
type nudge struct {
	server *server
	at     time.Time
	size   time.Duration
}

// docks notes the steps since the hold of b was asked for: what it has of a server may be older.
func (r *register) docks(b *belief) {
	for _, n := range r.nudges {
		if n.at.After(b.asked) {
			b.dock(n)
		}
	}
}

// dock notes that what a server has of the hold of b ends earlier by a step.
func (b *belief) dock(n nudge) {
	lease := b.ttl
	if b.limited {
		lease = min(lease, b.until.Sub(b.granted))
	}
	if n.size <= spare(lease) {
		return
	}
	if b.docked == nil {
		b.docked = make(map[*server]time.Time)
	}
	b.docked[n.server] = n.at.Add(b.lasts() + reaction)
}

// isDocked reports whether what a member has of the hold of b may have ended early, as its clock was
// set forward since that was renewed.
func (b *belief) isDocked(s *server) bool { return time.Now().Before(b.docked[s]) }

// isAnyDocked reports whether that is so at any member.
func (b *belief) isAnyDocked() bool {
	for s := range b.docked {
		if b.isDocked(s) {
			return true
		}
	}
	return false
}

// isCut reports whether the hold of b may have so few members because of that that the others make up
// another one.
func (r *register) isCut(b *belief) bool {
	if !b.isAnyDocked() {
		return false
	}
	behind := 0
	for _, s := range r.w.masters() {
		if r.keeps(s, b) {
			behind++
		}
	}
	return behind <= r.w.plan.spare()
}
