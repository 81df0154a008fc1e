package simulation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// A trigger has a fault wait for a request. What goes wrong at a time that a plan draws hardly ever
// meets the microseconds between what a script does and what its client hears of it.
type trigger struct {
	Script string // its name, or what it does: grants, queues, ends or writes
	Nth    int    // which of those that come from the time of the fault on
	When   when
	Next   bool `json:",omitempty"` // it is about who has got the lock or is first in the queue, and not about who asks
	Gently bool `json:",omitempty"` // what a server has sent before it ends connections arrives

	Delay time.Duration `json:",omitempty"` // how long after it
	Sent  bool          `json:",omitempty"` // that is since its client has sent it
}

// when says at which point of a script a fault happens.
type when int

const (
	beforeEffect when = iota // it has come, and is not executed yet
	beforeAnswer
	afterAnswer
)

var whens = []string{"before", "unanswered", "answered"}

// name is what a search selects faults by.
func (f Fault) name() string {
	if m := f.Trigger; m != nil {
		if m.Delay > 0 {
			return f.Kind + " after " + m.Script
		}
		return f.Kind + " at " + m.Script + " " + whens[m.When]
	}
	return f.Kind
}

// firstLines are what the scripts of the library begin with.
var firstLines = map[string]string{
	"acquire":  "-- Takes the lock, or joins its queue, or says how an earlier call stands.",
	"break":    "-- Takes a lock away from who holds it under a token, and lets in who is next.",
	"check":    "-- Looks after a lock that a client has let go of: lets in who can be, and",
	"convert":  "-- Turns a hold into one of another kind, and lets in who can be now.",
	"drop":     "-- Ends exclusive holds, each if nobody waits for its lock and little has to be",
	"enter":    "-- Proves a hold, refreshes it, and records how often it is entered.",
	"grab":     "-- Takes locks for exclusive holds, each if it is free and little has to be known",
	"grabvote": "-- Grab on one of several servers that decide together: it takes nothing on a server",
	"release":  "-- Ends holds or leaves queues, and lets in who is next at each lock.",
	"renew":    "-- Keeps holds alive.",
	"token":    "-- Has a hold be known by a token that other servers have given it.",
	"vote":     "-- Acquire on one of several servers that decide together: it first asks since",
}

// scriptOf is the name of a script with that source, empty if it is none of those.
func scriptOf(source string) string {
	for name, line := range firstLines {
		if strings.HasPrefix(source, line) {
			return name
		}
	}
	return ""
}

// A deed is what a script has done.
type deed struct {
	script string
	does   []string
	next   string   // the client that has the lock by it, or is the first in the queue
	names  []string // of the locks
}

// deedOf says what a script has done to locks that stood so before.
func (s *server) deedOf(script string, before map[string]truth) deed {
	d := deed{script: script, does: []string{"writes"}}
	add := func(what string) {
		if !slices.Contains(d.does, what) {
			d.does = append(d.does, what)
		}
	}
	for name, old := range before {
		t := s.truths[name].asOf(s.data.now)
		old = old.asOf(s.data.now)
		d.names = append(d.names, name)
		for _, id := range t.holders() {
			if !had(old, id) {
				add("grants")
				d.next = s.owner(id)
			}
		}
		for _, id := range old.holders() {
			if !slices.Contains(t.holders(), id) {
				add("ends")
			}
		}
		if len(t.queue) > len(old.queue) {
			add("queues")
		}
		if d.next == "" && len(t.queue) > 0 {
			d.next = s.owner(t.queue[0])
		}
	}
	return d
}

// An awaited is a fault that waits for its moment.
type awaited struct {
	Fault
	old  *store // what the server had as it began to wait
	from *server
}

// copyFor is with what a server restarts that had something before a script: with that, or with
// what it had as a began to wait.
func (a *awaited) copyFor(s *server, before *store) *store {
	switch {
	case a.old != nil && a.from == s:
		return a.old
	case before != nil:
		return before
	}
	return s.save()
}

// triggers are the faults that wait.
type triggers struct {
	mu  sync.Mutex
	all []*awaited
}

// await has a fault wait for its moment.
func (w *world) await(f Fault) {
	a := &awaited{Fault: f, from: w.master(f.Server)}
	m := *f.Trigger
	a.Trigger = &m
	if f.Kind == "restart-old" && f.Size > 0 {
		a.old = a.from.save()
	}
	w.triggers.mu.Lock()
	defer w.triggers.mu.Unlock()
	w.triggers.all = append(w.triggers.all, a)
}

// awaits reports whether a fault waits for a moment: any, or one of a kind.
func (w *world) awaits(kind string) bool {
	w.triggers.mu.Lock()
	defer w.triggers.mu.Unlock()
	return slices.ContainsFunc(w.triggers.all, func(a *awaited) bool { return kind == "" || a.Kind == kind })
}

// meets takes the faults whose moment has come: a script of a client is at a server.
func (w *world) meets(s *server, client string, d deed, when when) (met []*awaited) {
	index := w.indexOf(client)
	if w.over.Err() != nil || index < 0 {
		return nil
	}
	w.triggers.mu.Lock()
	defer w.triggers.mu.Unlock()
	w.triggers.all = slices.DeleteFunc(w.triggers.all, func(a *awaited) bool {
		is := a.Trigger.Script == d.script || slices.Contains(d.does, a.Trigger.Script)
		if !is || a.Trigger.When != when || a.Client >= 0 && a.Client != index || w.master(a.Server) != s {
			return false
		}
		if a.Trigger.Nth--; a.Trigger.Nth > 0 {
			return false
		}
		met = append(met, a)
		return true
	})
	return met
}

// begins notes which script a connection is to execute, and has happen what waits for that.
func (s *server) begins(p *peer, cmd string, args []string) {
	p.deed, p.before, p.old = deed{}, nil, nil
	if s.world == nil || !strings.HasPrefix(cmd, "EVAL") || len(args) == 0 || !s.world.awaits("") {
		return
	}
	source := args[0]
	s.mu.Lock()
	if cmd == "EVALSHA" {
		source = s.scripts[source]
	}
	s.mu.Unlock()
	script := scriptOf(source)
	if script == "" {
		return
	}
	p.deed.script = script
	for _, a := range s.world.meets(s, p.name, deed{script: script, does: []string{"writes"}}, beforeEffect) {
		keys, _ := keysOf(cmd, args)
		d := deed{names: locksOf(keys)}
		d.next = s.firstOf(d.names)
		s.world.strike(a, p, d, s.save())
	}
}

// firstOf is a client that is the first in the queue of one of some locks.
func (s *server) firstOf(names []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if queue := s.truths[name].queue; len(queue) > 0 {
			return s.owner(queue[0])
		}
	}
	return ""
}

// sees notes how locks stand that a script is about to change. It is called with mu held.
func (s *server) sees(p *peer, cmd string, args []string) {
	if p.deed.script == "" {
		return
	}
	keys, _ := keysOf(cmd, args)
	p.before = make(map[string]truth)
	for _, name := range locksOf(keys) {
		p.before[name] = s.truths[name]
	}
	if s.world.awaits("restart-old") {
		p.old = s.data.copy()
	}
}

// did notes what a script has done, likewise.
func (s *server) did(p *peer, err error) {
	switch {
	case p.deed.script == "":
	case err != nil:
		p.deed = deed{}
	default:
		p.deed = s.deedOf(p.deed.script, p.before)
	}
}

// meet has happen what waits for the script that p has just executed.
func (p *peer) meet(when when) {
	if p.deed.script == "" {
		return
	}
	for _, a := range p.server.world.meets(p.server, p.name, p.deed, when) {
		if when == afterAnswer {
			p.flush()
		}
		p.server.world.strike(a, p, p.deed, p.old)
	}
}

// ofClients are the faults at such a moment that concern one client.
var ofClients = []string{
	"kill-client", "give-up", "kill-one", "reset", "cut", "hole", "half-dead", "half-open",
	"stall-one", "stall-requests", "kill-subscription", "stall-subscription", "late-subscription", "deaf", "mute",
}

// strike has a fault happen now. Whoever calls it goes on when all has happened that takes no time.
func (w *world) strike(a *awaited, p *peer, d deed, before *store) {
	if w.delayed(a, p, d, before) {
		return
	}
	f := a.Fault
	if slices.Contains(ofClients, f.Kind) {
		who := p.name
		if f.Trigger.Next {
			who = d.next
		}
		if f.Client = w.indexOf(who); f.Client < 0 || w.clients[f.Client].dead.Load() {
			return
		}
	} else {
		f.Client = -1
	}
	w.reg.tell(-2, "%s of %s at s%d %v:", f.name(), p.name, p.server.index, d.names)
	if f.Kind != "break" && f.Kind != "give-up" {
		w.reg.touch(f)
	}
	if f.Trigger.Gently || f.Trigger.When == afterAnswer {
		w.hangsUp(f, p)
	}
	go func() {
		switch {
		case f.Kind == "give-up":
			w.giveUp(f.Client, d.names)
		case f.Kind == "break":
			w.breaks(d.names)
		case f.Kind == "kill-one" && !f.Trigger.Next:
			p.conn.(*conn).hangUp()
		case f.Kind == "restart-old":
			w.restart(p.server, f, a.copyFor(p.server, before))
		default:
			w.happen(f)
		}
	}()
	time.Sleep(time.Nanosecond)
}

// hangsUp has what a server has sent arrive, where a fault ends connections: all of them, or, if it
// is not to be gentle, the one that has been answered.
func (w *world) hangsUp(f Fault, p *peer) {
	ends := strings.HasPrefix(f.Kind, "restart") || f.Kind == "promotion" && f.Way == 0 || f.Kind == "reset"
	if !ends {
		return
	}
	var all []*conn
	p.server.mu.Lock()
	for o := range p.server.peers {
		mine := (o == p || f.Trigger.Gently) && (f.Kind != "reset" || p.server.world.label(f.Client) == o.name)
		if c, simulated := o.conn.(*conn); simulated && mine && !c.link.isQuick() {
			all = append(all, c)
		}
	}
	p.server.mu.Unlock()
	for _, c := range all {
		c.hangUp()
		n := c.link.way.net
		n.mu.Lock()
		delete(c.link.way.links, c.link)
		n.mu.Unlock()
	}
}

// giveUp cancels the contexts of all calls of a client for some locks.
func (w *world) giveUp(client int, names []string) {
	r := w.reg
	a := &actor{w: w, c: w.clients[client]}
	var cancels []func()
	r.mu.Lock()
	for c := range r.calls {
		if c.client != client || c.cancel == nil || !slices.ContainsFunc(c.names, func(n string) bool { return slices.Contains(names, n) }) {
			continue
		}
		end := time.Now().Add(a.undoing())
		if w.plan.Clients[client].Hooks == "panic" {
			end = end.Add(firstAnswer)
		}
		isHeld := c.heldUp && c.bound.IsZero() // a hook that has not returned holds it up
		if !isHeld && (c.bound.IsZero() || end.Before(c.bound)) {
			c.bound, c.limit = end, end
		}
		cancels = append(cancels, c.cancel)
	}
	r.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}

// triggers draws faults that wait for a request.
func (g *generator) triggers() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 52))}
	p := g.plan
	if len(p.Faults) == 0 || !g.often(25) {
		return
	}
	servers := p.Faults
	if g.often(60) {
		p.Faults = nil
	}
	kind := ""
	if g.often(40) {
		kind = g.sudden()
	}
	if kind == "evict" && g.often(60) {
		g.reads()
	}
	for range 1 + g.IntN(8) {
		f := Fault{Kind: kind, At: g.within(0, p.Length), Client: -1, Server: pick(g.draw, servers...).Server, Way: g.IntN(3)}
		if kind == "" {
			f.Kind = g.sudden()
		}
		f.For = pick(g.draw, 0, g.within(0, 100*time.Millisecond), g.lasting())
		f.Trigger = g.trigger()
		if g.often(20) {
			f.Client = g.IntN(len(p.Clients))
		}
		switch f.Kind {
		case "restart-old":
			f.Size = pick[time.Duration](g.draw, 0, 0, 1) // what there was just before, or as it began to wait
		case "clock-on", "clock-back", "late-subscription", "slot-move", "promotion":
			f.Size = pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, min(p.TTL, mostMoving)))
		}
		if f.Kind == "slot-move" {
			f.For = min(f.For, mostMoving)
		}
		p.Faults = append(p.Faults, f)
		if f.Kind == "kill-client" && g.often(60) {
			next := p.Clients[g.IntN(len(p.Clients))]
			next.After, next.Close = 1+f.At+g.within(0, p.TTL), 0
			p.Clients = append(p.Clients, next)
		}
	}
}

// reads has half of the locks be for readers, who have them for several leases: longer than it takes
// to hear of a key that was deleted.
func (g *generator) reads() {
	g.each(func(op *Op) {
		if op.Call == "lock" && g.often(50) && !op.ByName {
			op.Call, op.Downgrade = "rlock", false
		}
		if op.Call == "rlock" && g.often(40) {
			op.Hold += g.within(0, 5*g.plan.TTL)
		}
	})
}

// trigger draws which request a fault waits for.
func (g *generator) trigger() *trigger {
	scripts := []string{"grab", "acquire", "drop", "release", "renew", "enter", "convert", "check"}
	if g.plan.Backend == "quorum" {
		scripts = []string{"grabvote", "vote", "token", "drop", "release", "renew", "convert", "check", "token"}
	}
	m := &trigger{Nth: pick(g.draw, 1, 1+g.IntN(3), 1+g.IntN(10)), When: when(g.IntN(3)), Next: g.often(40), Gently: g.often(50)}
	m.Script = pick(g.draw, append(scripts, "writes")...)
	if m.When != beforeEffect && g.often(60) {
		m.Script = pick(g.draw, "grants", "grants", "queues", "ends")
	}
	return m
}

// sudden draws what goes wrong at such a moment.
func (g *generator) sudden() string {
	all := []string{
		"kill-client", "kill-client", "give-up", "give-up", "kill-one", "reset", "cut", "hole", "half-dead", "stall-one",
		"kill-subscription", "mute", "restart", "restart-empty", "restart-old", "restart-old", "flush", "break", "pause",
	}
	switch {
	case g.plan.Backend == "quorum":
	case g.plan.Cluster:
		all = append(all, "slot-move", "slot-move", "takeover", "promotion", "failover", "evict", "evict", "evict")
	case g.plan.Replica:
		all = append(all, "promotion", "promotion", "failover", "evict", "evict")
	default:
		all = append(all, "evict", "evict", "flush-scripts", "clock-on", "clock-back")
	}
	return pick(g.draw, all...)
}
