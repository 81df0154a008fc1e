package simulation

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"time"
)

// A race says that the connection is to stall, in a direction and for some time, of a request that
// another one about the same hold overtakes. What goes wrong at a moment that a plan draws hardly
// ever meets two such requests, as when a member of a quorum is told two tokens: this waits for them.
type race struct {
	until time.Time
	way   int
	stall time.Duration
}

// mostStalled is how many connections of a way are stalled at once by that: the others, and new
// ones, go on.
const mostStalled = 2

// overtakes draws requests that are overtaken.
func (g *generator) overtakes() {
	g.adds(46, 15, func(f *Fault) {
		f.Kind, f.For = "overtaken", max(f.For, min(g.plan.TTL, longest))
		f.Size = g.within(0, mostOvertaken)
	})
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 47))}
	if g.plan.Backend == "quorum" && len(g.plan.Faults) > 0 && g.often(10) {
		g.outrun()
	}
}

// mostOvertaken is for how long what is overtaken stalls at most: twice as long as anybody waits for
// one answer.
const mostOvertaken = 4 * time.Second

// outrun has requests be overtaken at all servers of a quorum, all the time and of all clients, and
// nothing else go wrong: a majority of them may take a part for gone that it has. Who has a lock keeps
// it for longer than anybody waits for one answer.
func (g *generator) outrun() {
	p := g.plan
	p.Faults = nil
	stall := g.within(mostOvertaken/2, mostOvertaken)
	g.each(func(op *Op) {
		if g.often(50) {
			op.Hold += g.within(0, mostOvertaken)
		}
	})
	for at := time.Duration(0); at < p.Length; at += longest {
		for s := range p.Servers {
			p.Faults = append(p.Faults, Fault{
				Kind: "overtaken", At: at, For: longest, Client: -1, Server: s, Way: g.IntN(3), Size: stall,
			})
		}
	}
}

// races has what is overtaken on a way stall until then.
func (w *way) races(f Fault, end time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.race = race{end, f.Way, f.Size}
}

// aHold is the id of a hold in a request.
var aHold = regexp.MustCompile(`\b[wr][0-9]+[pv0-9]*:[0-9a-f]{32}:[^\r]+`)

// overtake notes that a client writes to l, and has those of its connections stall on which it is
// not answered yet about the same hold. It is called with the mutex of the network.
func (l *link) overtake(now time.Time, b []byte) {
	w := l.way
	if l.subscribed || l.quick || !now.Before(w.race.until) {
		return
	}
	if !l.awaits(now) {
		l.holds = nil
	}
	var stalled int
	var first []*link
	for _, id := range aHold.FindAll(b, -1) {
		l.holds = append(l.holds, string(id))
	}
	for o := range w.links {
		switch {
		case o == l:
		case later(o.held[up], o.held[down]).After(now):
			stalled++
		case o.awaits(now) && slices.ContainsFunc(o.holds, func(id string) bool { return slices.Contains(l.holds, id) }):
			first = append(first, o)
		}
	}
	slices.SortFunc(first, func(a, b *link) int { return a.number - b.number })
	for _, o := range first[:min(len(first), max(mostStalled-stalled, 0))] {
		for _, d := range []direction{up, down} {
			if w.race.way == 2 || direction(w.race.way) == d {
				o.held[d] = now.Add(w.race.stall)
			}
		}
	}
}

// awaits reports whether an answer to what was last written to l may be under way.
func (l *link) awaits(now time.Time) bool {
	return l.written.After(l.replied) || now.Before(l.replied.Add(l.way.base+l.way.extra[down]))
}
