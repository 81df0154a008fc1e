package simulation

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/simulation/slowsync"
)

// A standstill is a time in which a process does nothing at all, while servers, the network and
// others go on: it was stopped, its memory is collected, or its machine is away. Then all of its
// goroutines go on at once, in any order, with what has come meanwhile, and with all timers that are
// due. It happens only where the runtime is built for that; see TestStandstills.

func init() {
	furtherKinds["standstill"] = touch{loses: true, fails: true}
	kinds["standstill"] = furtherKinds["standstill"]
}

// A point is where a process is stopped.
type point int

const (
	atRest  point = iota // all of its goroutines wait for something
	atMutex              // one of them takes or leaves a mutex of the library
	atSend               // is about to send something
	atSent
	atAnswer // has just read something
	points
)

// arming is for how long a process is waited for to come to such a moment.
const arming = time.Second

// mostStopped is how many processes the runtime stops at a time.
const mostStopped = 8

// standstills gives a plan times in which processes stand still: less than it takes to notice, about
// as long as a lease, or several leases. In memory all clients are one process.
func (p *Plan) standstills() {
	d := &draw{rand.New(rand.NewPCG(p.Seed, 75))}
	p.apart() // who shares connections is one process
	if p.Backend == "memory" && len(p.Clients) > mostStopped {
		return
	}
	if d.often(40) {
		p.Faults = nil
	}
	for range 1 + d.IntN(5) {
		f := Fault{Kind: "standstill", At: d.within(0, p.Length), Client: d.IntN(len(p.Clients)), Way: d.IntN(int(points))}
		f.For = pick(d,
			d.within(10*time.Millisecond, 200*time.Millisecond), d.within(0, p.TTL), d.within(p.TTL, 4*p.TTL),
			d.within(p.TTL-5*time.Millisecond, p.TTL+5*time.Millisecond), d.within(p.TTL/3, p.TTL))
		f.Steps = 1 + d.IntN(pick(d, 5, 50))
		if p.Backend == "memory" || d.often(15) && len(p.Clients) <= mostStopped {
			f.Client = -1
		}
		p.Faults = append(p.Faults, f)
	}
}

// A stop waits for the moment at which processes are stopped.
type stop struct {
	at      point
	left    atomic.Int64 // of the points of that kind
	clients []*client
	begun   chan struct{} // holds one when they are
}

// comesTo stops the processes of s if this is the moment, and the caller is in one of them.
func (s *stop) comesTo(at point) {
	own := func(c *client) bool { return c.process.IsOwn() }
	if s.at == at && slices.ContainsFunc(s.clients, own) && s.left.Add(-1) == 0 {
		s.begin()
	}
}

func (s *stop) begin() {
	select {
	case s.begun <- struct{}{}:
	default:
		return
	}
	for _, c := range s.clients {
		if c.still.Add(1) == 1 {
			c.process.Stop()
		}
	}
}

// stops are those that wait.
type stops struct{ all atomic.Pointer[[]*stop] }

func (s *stops) change(f func([]*stop) []*stop) {
	for {
		old := s.all.Load()
		var before []*stop
		if old != nil {
			before = *old
		}
		after := f(slices.Clone(before))
		if s.all.CompareAndSwap(old, &after) {
			return
		}
	}
}

// comesTo is called by whoever comes to a moment. It stands still there if its process does.
func (s *stops) comesTo(at point) {
	if all := s.all.Load(); all != nil {
		for _, one := range *all {
			one.comesTo(at)
		}
	}
	slowsync.StandStill()
}

// atMutex is what who takes or leaves a mutex of the library does first; nil: nothing.
func (s *stops) atMutex(p *Plan) func() time.Duration {
	if !p.has("standstill") {
		return nil
	}
	return func() time.Duration {
		s.comesTo(atMutex)
		return 0
	}
}

// standStill has processes be stopped, and go on after some time.
func (w *world) standStill(f Fault) {
	s := &stop{at: point(f.Way), clients: w.clients, begun: make(chan struct{}, 1)}
	if f.Client >= 0 {
		s.clients = w.clients[f.Client : f.Client+1]
	}
	s.clients = slices.DeleteFunc(slices.Clone(s.clients), func(c *client) bool { return c.dead.Load() })
	s.left.Store(int64(f.Steps))
	if s.at == atRest {
		s.begin()
	}
	w.stops.change(func(all []*stop) []*stop { return append(all, s) })
	select {
	case <-s.begun:
		s.begun <- struct{}{} // it has begun for good
	case <-time.After(arming):
		s.begin()
	case <-w.over.Done():
		s.begin()
	}
	w.stops.change(func(all []*stop) []*stop { return slices.DeleteFunc(all, func(o *stop) bool { return o == s }) })
	rnd := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.At)))
	for _, c := range s.clients {
		w.reg.tell(c.index, "stands still for %v", f.For)
		w.looksAfter(c, time.Duration(rnd.Int64N(int64(f.For)+1)))
	}
	from := time.Now()
	_ = sleep(w.over, f.For)
	w.reg.stoodStill(s.clients, from)
	for _, c := range s.clients {
		if c.still.Add(-1) == 0 {
			c.process.Continue(rnd.Uint64())
		}
	}
	if rnd.IntN(2) == 0 { // before any of its goroutines
		for _, c := range s.clients {
			w.reg.lookAt(c.index)
		}
	}
}

// looksAfter has somebody in the process of a client look at its leases when it goes on.
func (w *world) looksAfter(c *client, after time.Duration) {
	go c.process.Run(func() {
		_ = sleep(w.over, after)
		w.reg.lookAt(c.index)
	})
}

// A standstill is when a client has stood still.
type standstill struct {
	client   int
	from, to time.Time
}

// standsStill is what a standstill touches: for its client all servers are away.
func (r *register) standsStill(f Fault, t touched) (all []touched) {
	t.server, t.to = everywhere, t.from.Add(arming+f.For)
	if f.Client >= 0 {
		return []touched{t}
	}
	for t.client = range r.w.clients {
		all = append(all, t)
	}
	return all
}

// stoodStill notes that clients go on. Calls whose time has gone by meanwhile end at once.
func (r *register) stoodStill(clients []*client, from time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, c := range clients {
		r.note(c.index, "goes on")
		r.stills = append(r.stills, standstill{c.index, from, now})
		for o := range r.calls {
			if o.client == c.index && !o.bound.IsZero() && o.bound.Before(now.Add(r.w.undoing(c.index))) {
				o.bound = now.Add(r.w.undoing(c.index))
			}
		}
	}
}

// goesOn is when a client could do what it had to do at a time: at once, or when it goes on.
func (r *register) goesOn(client int, at time.Time) time.Time {
	for _, s := range r.stills { // in the order of their ends
		if s.client == client && !at.Before(s.from) {
			at = later(at, s.to)
		}
	}
	return at
}

// stood reports whether a client has stood still since then, or does.
func (r *register) stood(client int, since time.Time) bool {
	return r.isStill(client) || slices.ContainsFunc(r.stills, func(s standstill) bool { return s.client == client && !s.to.Before(since) })
}

// isStill reports whether a client stands still: nobody there believes anything, and nobody may
// look, as who has stopped may have a mutex.
func (r *register) isStill(client int) bool { return r.w.clients[client].still.Load() > 0 }

// lookAt looks at what a client believes.
func (r *register) lookAt(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.beliefs {
		if b.client != client || r.dead[client] || r.isStill(client) {
			continue
		}
		if b.lease.Err() != nil {
			r.lostTrue(b)
			continue
		}
		r.alone(b)
		r.backed(b)
		r.untilTrue(b)
	}
}

// outside has f be done by nobody's process.
func outside(f func()) { slowsync.Process{}.Run(f) }
