package simulation

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// The machine on which all clients of a plan run is suspended, as a laptop is that is closed, and its monotonic clock
// with it: on Linux and macOS that stands still meanwhile, and timers with it. To who runs there that is a moment in
// which the clocks of all servers, and its own wall clock, go on by some time. Virtual time has one clock, so that is
// what happens here: servers' clocks step, and so does the wall clock that the library reads beside the monotonic one.
// By that a lease is over, when the machine wakes, as soon as anybody looks: no step of clocks excuses a believer.

func init() {
	maps.Copy(furtherKinds, map[string]touch{"suspend": {loses: true, fails: true}})
	kinds["suspend"] = furtherKinds["suspend"]
	answering = append(answering, "suspend")
}

// suspends has the machine of all clients of a part of the plans be suspended: for less than it takes to notice,
// less than a lease, or longer. In half of them something on the way has forgotten all connections when it wakes.
func (g *generator) suspends() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 244))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || len(p.Faults) == 0 || p.isLonger() || !g.often(4) {
		return
	}
	if g.often(60) {
		p.Faults = nil
	}
	for range 1 + g.IntN(4) {
		f := Fault{Kind: "suspend", At: g.within(0, p.Length), Client: -1}
		f.For = pick(g.draw, g.within(0, p.TTL/3), g.within(0, p.TTL), g.within(p.TTL, 4*p.TTL), g.within(p.TTL-5*time.Millisecond, p.TTL+5*time.Millisecond))
		p.Faults = append(p.Faults, f)
		if g.often(50) {
			for place := range max(p.Servers, p.shards()) {
				p.Faults = append(p.Faults, Fault{Kind: pick(g.draw, "half-open", "reset", "half-dead"), At: f.At, For: 100 * time.Millisecond, Client: -1, Server: place, Way: 2})
			}
		}
	}
}

// A wallClock is that of the machine of all clients.
type wallClock struct {
	mu    sync.Mutex
	steps []step
}

// A step is when a machine woke, and for how long it was suspended.
type step struct {
	at time.Time
	by time.Duration
}

// read is the wall clock at a time. The steps are in order.
func (c *wallClock) read(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	ns := t.UnixNano()
	for _, s := range c.steps {
		if !t.Before(s.at) {
			ns += int64(s.by)
		}
	}
	return ns
}

// ahead is by how much it is ahead of the monotonic clock now.
func (c *wallClock) ahead() time.Duration {
	now := time.Now()
	return time.Duration(c.read(now) - now.UnixNano())
}

// goesOn sets the clock forward.
func (c *wallClock) goesOn(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, step{time.Now(), by})
}

// isSuspended reports whether the machine of all clients is, at some time.
func (p *Plan) isSuspended() bool { return p.has("suspend") }

// has reports whether a plan has faults of one of those kinds.
func (p *Plan) has(kinds ...string) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return slices.Contains(kinds, f.Kind) })
}

// wasSuspended reports whether the machine has been since then, or whether its wall clock was set forward.
func (r *register) wasSuspended(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return (t.kind == "suspend" || t.kind == wallOn) && !t.from.Before(since)
	})
}

// wears has a client that begins read the wall clock of the machine.
func (w *world) wears(c *dlock.Client) {
	if !w.plan.has("suspend", wallOn, wallBack) {
		return
	}
	keeper := reflect.ValueOf(c).Elem().FieldByName("keeper").Elem()
	*(*func(time.Time) int64)(keeper.FieldByName("clock").FieldByName("wall").Addr().UnsafePointer()) = w.wall.read
}

// suspend has the machine wake after it was suspended for some time.
func (w *world) suspend(f Fault) {
	w.wall.goesOn(f.For)
	w.on.Add(int64(f.For))
	for _, s := range w.nodes {
		s.step(f.For)
		s.passes()
	}
}

// passes has a server look what has run out.
func (s *server) passes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	s.lookAll()
}
