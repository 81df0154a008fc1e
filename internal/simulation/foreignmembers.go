package simulation

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// Somebody else uses a key of a lock at members of a quorum, where nobody has that lock: a key that is
// taken away from under a hold is data that a member loses, which no quorum is promised to survive. As long as
// the others are enough, nobody hears of that. Where they are not, whoever asks is told at once.

// foreignMembers draws such keys in a part of the plans of a quorum: at as many members as it can do
// without, or at any.
func (g *generator) foreignMembers() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 136))}
	p := g.plan
	if p.Backend != "quorum" || p.Shelves || !g.often(8) {
		return
	}
	if g.often(60) {
		p.Faults = nil
	}
	for range 1 + g.IntN(4) {
		at, lasts, way := g.within(0, p.Length), g.within(time.Second, longest), g.IntN(3)
		most := max(p.spare(), 1)
		if g.often(40) {
			most = p.Servers
		}
		for _, place := range g.Perm(p.Servers)[:1+g.IntN(most)] {
			p.Faults = append(p.Faults, Fault{Kind: "foreign", At: at, For: lasts, Client: -1, Server: place, Way: way})
		}
	}
}

// A theft is the time in which a key of a lock is somebody else's at a member, and cannot be read.
type theft struct {
	server   int
	from, to time.Time
}

// intrudesMember has somebody else use a key of a lock at a member, once nobody has that there. All faults
// of one moment are about the same lock.
func (w *world) intrudesMember(f Fault) {
	rnd, end := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.At))), time.Now().Add(f.For)
	name, s := w.names()[rnd.IntN(len(w.names()))], w.master(f.Server)
	key, v := lockKey(name), text(f)
	switch f.Way {
	case 1:
		key += []string{":r", ":q", ":a"}[rnd.IntN(3)]
	case 2:
		v = &value{hash: maps.Clone(hashes[rnd.IntN(len(hashes))])}
		v.hash[theirs] = fmt.Sprintf("%d", f.At)
	}
	w.reg.intruded(name, f.For)
	for !s.putUnused(name, key, v) {
		if sleep(w.over, 10*time.Millisecond) != nil || !time.Now().Before(end) {
			return
		}
	}
	w.reg.tell(-2, "%s at s%d is somebody else's", key, s.index)
	if f.Way != 1 && v.isUnreadable() {
		w.reg.steals(name, theft{s.index, time.Now(), end})
	}
	_ = sleep(w.over, time.Until(end))
	w.takenAway.note(key, v)
	if why := s.takeAway(key, v); why != "" {
		w.reg.mu.Lock()
		defer w.reg.mu.Unlock()
		w.reg.violate("what is another's is left alone", "%s at s%d: %s", key, s.index, why)
	}
}

// putUnused has a key of a lock have a value, if nobody has to do with the lock, and no request about it may
// be refused. It reports whether it has.
func (s *server) putUnused(name, key string, v *value) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	t, main := s.read(name), s.data.get(lockKey(name))
	if t.holder != "" || len(t.readers) > 0 || len(t.queue) > 0 || main != nil && (main.text || main.hash["b"] != "") {
		return false
	}
	if key != lockKey(name) && s.data.get(key) != nil {
		return false
	}
	s.data.values[key] = v.copy()
	s.lookAll()
	return true
}

func (r *register) steals(name string, t theft) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.thefts == nil {
		r.thefts = make(map[string][]theft)
	}
	r.thefts[name] = append(r.thefts[name], t)
}

// hopeless is for how long, while a call was under way, so many members could not read the lock that the
// others are not enough.
func (r *register) hopeless(c *call) (longest time.Duration) {
	now, all := time.Now(), r.thefts[c.names[0]]
	for _, first := range all {
		from := later(c.start, first.from)
		var ends []time.Time
		for _, t := range all {
			if !t.from.After(from) && t.to.After(from) {
				ends = append(ends, t.to)
			}
		}
		if n := len(ends) - 1 - r.w.plan.spare(); n >= 0 {
			slices.SortFunc(ends, time.Time.Compare)
			to := ends[n] // with that, too few of them are left
			if now.Before(to) {
				to = now
			}
			longest = max(longest, to.Sub(from))
		}
	}
	return longest
}

// toldAtOnce is within what time a call is told that too many members cannot read its lock.
const toldAtOnce = time.Second

// isToldConflict checks that a call is told of such a lock at once, where nothing else is wrong.
func (r *register) isToldConflict(c *call, err error) {
	if len(r.thefts) == 0 || len(c.names) != 1 || !slices.Contains([]string{"lock", "trylock", "rlock", "tryrlock"}, c.what) || r.dead[c.client] || r.stuttered(c.start) {
		return
	}
	if h := r.w.plan.Clients[c.client].Hooks; h == "slow" || h == "panic" || c.nested || r.w.plan.needsAll() {
		return // where all are needed, those who wait are told in turn
	}
	others := func(t touched) bool { return t.kind != "foreign" && t.to.After(c.start.Add(-2*lingers)) }
	if slices.ContainsFunc(r.touches, others) {
		return
	}
	d := r.hopeless(c)
	switch {
	case d > toldAtOnce:
		r.violate("a conflict is told", "c%d %s %v: %v, and %v in which too many members could not read it", c.client, c.what, c.names, err, d)
	case d == time.Since(c.start) && d > 0 && err == nil:
		r.violate("a conflict is told", "c%d %s %v: it has it, and too many members cannot read it", c.client, c.what, c.names)
	case errors.Is(err, dlock.ErrConflict):
		r.coverage["a conflict told × "+c.what]++
	}
}
