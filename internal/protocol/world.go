package protocol

import (
	"cmp"
	"fmt"
	"slices"
)

// A Config says what a history is made of. Chances are between 0 and 1.
type Config struct {
	Seed    uint64
	Off     Rule // the rules that are left out
	Clients int
	TTL     int64
	Length  int64 // of the history; its second half is calm
	Margin  int64 // 0: a tenth of the TTL
	Think   int64 // between two locks of a client, at most; 0: a quarter of the TTL

	Patience         int64 // for an answer; 0: half a second
	Loss             float64
	Slow             float64 // of a message to be one that takes long
	Late             float64 // of a message of the server that answers no request
	SlowFrom, SlowTo int64   // which is this long; 0: up to four seconds
	Shared           float64 // of a wait to be a reader's
	Cancel           float64 // of a wait to be given up
	Pass             float64 // of a hold to be handed on in the client
	Downgrade        float64
	Long             float64 // of a hold to be up to two leases long; 0: a tenth

	// How often something happens, as the mean time between two.
	Crash, Stop, Deaf           int64 // to a client
	Failover                    int64 // to the server: subscriptions stay on the old one, now a replica
	StepBack, StepForward, Wipe int64 // to the server
	Forge, Replay               int64 // messages of strangers: made up, or overheard and sent again
	Settling                    int64 // how long after it became calm clients may sleep
	StepFrom, StepTo            int64 // how far the server's clock is set; 0: up to five seconds
	CrashHolder                 int64 // to whoever has the lock, to the end
	Break                       int64 // by somebody who has looked at the lock up to a TTL ago, to the end
}

// A World is one history of the lock.
type World struct {
	sim
	Config
	server  *server
	clients []*client // by number; the first does not exist

	overheard  []message // the last ones that were published
	grants     int
	grantedAt  map[id]int64
	taken      map[id]int64 // by Break: what comes after has greater tokens than this
	broken     int64        // when the server last let go of a hold before its time
	wrote      int64        // the greatest token of a writer
	mild       int64        // the greatest token of a writer that became a reader: other readers share it
	used       int64        // the greatest token of all
	Violations []string

	sleeping, haunted int64 // since when; 0: not
	LongestForgotten  int64 // of somebody reachable to wait and the server not to know, in the calm half
	LongestSleep      int64 // of the lock being free while somebody reachable waited for it, in the calm half
	LongestGhost      int64 // of the lock being held for nobody, in the calm half
	LongestBroken     int64 // of somebody believing in a hold that Break has taken away, in the calm half
	seen              int64 // when the last look was
}

const maxDrift = 3e-4

// Play runs one history.
func Play(c Config) *World {
	w := &World{sim: newSim(c.Seed), Config: c, grantedAt: make(map[id]int64), taken: make(map[id]int64)}
	w.now = second // so that no time is 0
	if w.Margin == 0 {
		w.Margin = min(max(w.TTL/10, 5*millisecond), second)
	}
	w.Patience = cmp.Or(w.Patience, second/2)
	w.Think = cmp.Or(w.Think, w.TTL/4)
	w.SlowTo = cmp.Or(w.SlowTo, 4*second)
	w.StepTo = cmp.Or(w.StepTo, 5*second)
	w.server = newServer(w)
	w.server.offset = 1e15
	w.clients = []*client{nil}
	for range c.Clients {
		w.join()
	}
	w.misfortunes()
	for w.next(w.Length, w.observe) {
		w.observe()
	}
	return w
}

// Grants is how many holds somebody believed in.
func (w *World) Grants() int { return w.grants }

func (c *Config) without(r Rule) bool { return c.Off&r != 0 }

func (w *World) join() {
	c := &client{World: w, number: len(w.clients), drift: (2*w.rng.Float64() - 1) * maxDrift, reached: make(map[id]int64)}
	w.clients = append(w.clients, c)
	c.rest()
}

// rest is the time between two locks.
func (c *client) rest() {
	c.later(c.upTo(c.Think), func() {
		if c.try == nil && c.holds == nil {
			c.lock(c.chance(c.Shared))
		}
	})
}

func (w *World) calm() bool { return w.now > w.Length/2 }

// quiet is when whatever was under way as it became calm is over.
func (w *World) quiet() int64 { return w.Length/2 + w.Settling }

func (w *World) loses() bool { return !w.calm() && w.chance(w.Loss) }

func (w *World) delay() int64 { return w.slow(w.Slow) }

func (w *World) slow(chance float64) int64 {
	if !w.calm() && w.chance(chance) {
		return w.SlowFrom + w.upTo(w.SlowTo-w.SlowFrom)
	}
	return 100 + w.upTo(3*millisecond)
}

func (w *World) margin() int64   { return w.Margin }
func (w *World) handOver() int64 { return min(w.TTL, 5*second) }

// holdTime is short as a rule and now and then longer than a lease.
func (w *World) holdTime() int64 {
	if w.chance(cmp.Or(w.Long, 0.1)) {
		return w.upTo(2 * w.TTL)
	}
	return w.upTo(w.TTL / 10)
}

// misfortunes begins what happens from time to time.
func (w *World) misfortunes() {
	w.every(w.Crash, false, func() { w.crash(w.anybody()) })
	w.every(w.CrashHolder, true, func() {
		if c := w.clients[w.server.owner.client]; c != nil && !c.watches && w.watched() {
			w.crash(c)
		}
	})
	w.every(w.Stop, false, func() { w.anybody().asleep = w.now + w.upTo(3*w.TTL) })
	w.every(w.Deaf, false, func() { w.anybody().subscription = [...]subscription{silent, gone}[w.upTo(2)] })
	w.every(w.Failover, false, w.leaveBehind)
	w.every(w.Break, true, func() {
		token := w.server.token
		w.after(w.upTo(w.TTL), func() { w.server.breakHolds(token) })
	})
	w.every(w.Forge, true, w.forge)
	w.every(w.Replay, true, w.replay)
	w.every(w.StepBack, false, func() { w.server.offset -= w.step() })
	w.every(w.StepForward, false, func() {
		w.server.offset += w.step()
		w.broken = w.now
	})
	w.every(w.Wipe, false, func() {
		w.server.wipe()
		w.broken = w.now
	})
}

// leaveBehind is a planned failover: nothing is lost, but whatever is subscribed stays
// where it is.
func (w *World) leaveBehind() {
	for _, c := range w.clients[1:] {
		if c.subscription == works {
			c.subscription = aside
		}
	}
}

func (w *World) crash(c *client) {
	if !c.crashed {
		c.crashed, c.try, c.holds = true, nil, nil
		w.join()
	}
}

// watched says whether somebody looks after the lock.
func (w *World) watched() bool {
	return slices.ContainsFunc(w.clients[1:], func(c *client) bool { return c.watches && !c.crashed })
}

func (w *World) step() int64 { return w.StepFrom + w.upTo(w.StepTo-w.StepFrom) }

func (w *World) every(mean int64, alsoCalm bool, do func()) {
	if mean == 0 {
		return
	}
	w.after(w.upTo(2*mean), func() {
		if w.calm() && !alsoCalm {
			return
		}
		do()
		w.every(mean, alsoCalm, do)
	})
}

// anybody is a client that lives.
func (w *World) anybody() *client {
	for {
		if c := w.clients[1+w.upTo(int64(len(w.clients)-1))]; !c.crashed {
			return c
		}
	}
}

func (w *World) wrong(format string, args ...any) {
	w.Violations = append(w.Violations, fmt.Sprintf("%.6f ", float64(w.now)/second)+fmt.Sprintf(format, args...))
}

// granted is called when the server grants a hold.
func (w *World) granted(i id, _ int64) { w.grantedAt[i] = w.now }

// takenAway is called when Break has ended a hold. What the server grants next has a
// token that is greater than last.
func (w *World) takenAway(i id, last int64) { w.taken[i] = last }

// excused says whether the server let go of a hold before its time.
func (w *World) excused(i id) bool {
	_, broken := w.taken[i]
	return broken || w.grantedAt[i] <= w.broken
}

// begins is called when a client begins to believe in h: nobody else may, but
// readers beside readers, and its token is greater than those before.
func (w *World) begins(h *hold) {
	w.grants++
	w.alone(h)
	before := w.used
	if h.shared {
		before = w.wrote
	}
	if shares := h.shared && h.token == w.mild; h.token <= before && !shares && !w.excused(h.id) {
		w.wrong("%v began with token %d after %d", h.id, h.token, before)
	}
	w.uses(h.token, h.shared)
}

// becomesReader is called when a writer begins to believe no more than that.
func (w *World) becomesReader(h *hold) {
	w.alone(h)
	w.mild = max(w.mild, h.token)
}

func (w *World) alone(h *hold) {
	for _, c := range w.clients[1:] {
		a := c.holds
		if a == nil || a == h || c == h.client || !a.believed() || a.shared && h.shared {
			continue
		}
		if !w.excused(a.id) && !w.excused(h.id) {
			w.wrong("%v began while %v believed for another %d µs", h.id, a.id, a.deadline-a.clock())
		}
	}
}

// handedOn is called when h went through a number of tokens in its client.
func (w *World) handedOn(h *hold, from, to int64) {
	last, broken := w.taken[h.id]
	if broken && to > last {
		w.wrong("token %d was handed on after Break, and the next is only greater than %d", to, last)
	}
	if broken || w.excused(h.id) {
		return // two may hold: the next token was greater than those before, and that is all
	}
	if from <= w.used {
		w.wrong("token %d was handed on after %d", from, w.used)
	}
	w.uses(to, false)
}

func (w *World) uses(token int64, shared bool) {
	w.used = max(w.used, token)
	if !shared {
		w.wrote = max(w.wrote, token)
	}
}

// observe measures, before and after each event, how long the lock has been
// free although somebody waits who can be reached, how long it has been held for
// nobody, and how long the server has not known who waits.
func (w *World) observe() {
	w.measure(&w.sleeping, w.free() && w.wanted() || w.readable(), w.expired(), &w.LongestSleep)
	w.measure(&w.haunted, w.ghost(), w.now, &w.LongestGhost)
	for _, c := range w.clients[1:] {
		w.measure(&c.mistaken, c.isMistaken(), w.now, &w.LongestBroken)
		w.measure(&c.forgotten, c.isForgotten(), w.now, &w.LongestForgotten)
	}
	w.seen = w.now
}

// measure notes in longest how long something has been so. It began, if it has
// only just been seen, at a time after the last look.
func (w *World) measure(since *int64, is bool, began int64, longest *int64) {
	switch {
	case !is || w.now < w.quiet():
		*since = 0
		return
	case *since == 0:
		*since = max(w.seen, min(began, w.now))
	}
	*longest = max(*longest, w.now-*since)
}

// expired is when the last lease on the server ended, or now.
func (w *World) expired() int64 {
	end := int64(0)
	for _, until := range w.holders() {
		end = max(end, until)
	}
	if end == 0 {
		return w.now
	}
	return end - w.server.offset
}

// free says whether no lease runs on the server.
func (w *World) free() bool {
	for _, until := range w.holders() {
		if until > w.server.time() {
			return false
		}
	}
	return true
}

func (w *World) wanted() bool {
	for _, c := range w.clients[1:] {
		if !c.crashed && c.try != nil && c.asleep <= w.now {
			return true
		}
	}
	return false
}

// isForgotten says whether c waits and the server does not know.
func (c *client) isForgotten() bool {
	if c.crashed || c.asleep > c.now || c.try == nil {
		return false
	}
	_, queued := c.server.queue[c.try.id]
	return !queued && c.server.until(c.try.id) <= c.server.time()
}

// isMistaken says whether c believes in a hold that it has not.
func (c *client) isMistaken() bool {
	if c.crashed || c.asleep > c.now || c.holds == nil || !c.holds.believed() {
		return false
	}
	_, broken := c.taken[c.holds.id]
	return broken
}

// readable says whether readers alone have the lock, and the next in the queue
// is another one, who can be reached.
func (w *World) readable() bool {
	s := w.server
	if s.owner != (id{}) && s.expiry > s.time() || len(s.queue) == 0 {
		return false
	}
	next := s.order()[0]
	c := w.clients[next.client]
	return next.shared && !c.crashed && c.asleep <= w.now && c.try != nil && c.try.id == next
}

// ghost says whether the server has granted the lock, since it is calm, to a
// client that lives and does not want it.
func (w *World) ghost() bool {
	now := w.server.time()
	for i, until := range w.holders() {
		c := w.clients[i.client]
		if until <= now || w.grantedAt[i] < w.Length/2 || c.crashed || c.asleep > w.now {
			continue
		}
		if (c.try == nil || c.try.id != i) && (c.holds == nil || c.holds.id != i) {
			return true
		}
	}
	return false
}

func (w *World) holders() map[id]int64 {
	all := make(map[id]int64, len(w.server.readers)+1)
	for i, until := range w.server.readers {
		all[i] = until
	}
	if w.server.owner != (id{}) {
		all[w.server.owner] = w.server.expiry
	}
	return all
}
