package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// Somebody else has a key of the server where the keys of a lock belong: of another type, or a hash with
// fields that no lock has. Who asks for that lock is told so, nobody loses another lock by it, and what is
// there stays as it is. Who has the lock loses it, if it was the key that says so.

func init() {
	furtherKinds["foreign"] = touch{}
	kinds["foreign"] = furtherKinds["foreign"]
}

// foreigners draws such keys in a part of the plans that have faults.
func (g *generator) foreigners() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 82))}
	p := g.plan
	if p.Backend != "redis" || len(p.Faults) == 0 || !g.often(10) {
		return
	}
	places := p.Faults
	if g.often(70) {
		p.Faults = nil
	}
	for range 1 + g.IntN(5) {
		f := Fault{Kind: "foreign", At: g.within(0, p.Length), For: g.within(0, min(3*p.TTL, longest)), Client: -1, Server: g.place(places), Way: g.IntN(3)}
		p.Faults = append(p.Faults, f)
	}
}

// theirs is what somebody else has in a hash.
const theirs = "theirs"

// hashes are such as somebody else may have. One with nothing but fields that no lock has is taken for a
// lock that nobody has had, and its fields stay; none is written to of which those of a lock cannot be read.
var hashes = []map[string]string{
	{theirs: theirs}, {theirs: theirs},
	{theirs: theirs, "t": "bob"}, {theirs: theirs, "d": "bob"}, {theirs: theirs, "o": "bob", "e": "soon"}, {theirs: theirs, "l": "bob"},
	{theirs: theirs, "t": "nan"}, {theirs: theirs, "d": "1e300"}, {theirs: theirs, "o": "bob", "e": "inf"}, {theirs: theirs, "a": "-inf"},
}

// isUnreadable reports whether a value is no lock to anybody.
func (v *value) isUnreadable() bool { return v.text || len(v.hash) > 1 && v.hash[theirs] != "" }

// text is what a fault has in a key that is of another type.
func text(f Fault) *value { return &value{text: true, mark: fmt.Sprintf("%d", f.At)} }

// isFrom reports whether a value is what somebody else had in a key, whatever a lock has added to it since.
func (v *value) isFrom(was *value) bool {
	return v.text == was.text && v.mark == was.mark && v.hash[theirs] == was.hash[theirs]
}

// A strange time is one in which a lock has, or may feel, a key that is somebody else's.
type strange struct {
	from, to time.Time
}

// intrudes has somebody else use a key of a lock for a time.
func (w *world) intrudes(f Fault) {
	if w.plan.Backend == "quorum" {
		w.intrudesMember(f)
		return
	}
	rnd := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.At)))
	names := slices.DeleteFunc(slices.Clone(w.names()), func(n string) bool { return !w.hits(f, n) })
	if len(names) == 0 {
		return
	}
	name := names[rnd.IntN(len(names))]
	key, v := lockKey(name), text(f)
	switch f.Way {
	case 1:
		key += []string{":r", ":q", ":a", ":x"}[rnd.IntN(4)]
	case 2:
		v = &value{hash: maps.Clone(hashes[rnd.IntN(len(hashes))])}
	}
	if !v.text { // another may be put in its place
		v.hash[theirs] = fmt.Sprintf("%d", f.At)
	}
	w.reg.intruded(name, f.For)
	w.reg.tell(-2, "%s is somebody else's", key)
	free := w.keeper(name).put(name, key, v)
	_ = sleep(w.over, f.For)
	w.takenAway.note(key, v)
	for _, s := range w.keepers(name) {
		if why := s.takeAway(key, v); why != "" && free {
			w.reg.mu.Lock()
			w.reg.violate("what is another's is left alone", "%s at s%d: %s", key, s.index, why)
			w.reg.mu.Unlock()
		}
	}
}

// put has a key of a lock have a value, and reports whether nobody had to do with the lock: who reads it
// renews what there is.
func (s *server) put(name, key string, v *value) (free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	t := s.read(name).asOf(s.data.now)
	free = !t.held() && len(t.queue) == 0
	s.data.values[key] = v.copy()
	s.send(effect{key: key, value: v.copy()})
	s.lookAll()
	return free
}

// takeAway takes away what somebody else had in a key, and says what is wrong with it. A server may have
// lost it, or be another one by now.
func (s *server) takeAway(key string, was *value) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	v := s.data.get(key)
	switch {
	case v == nil || !v.isFrom(was):
	case was.isUnreadable():
		if v.end != 0 || !maps.Equal(v.hash, was.hash) {
			why = fmt.Sprintf("%v, which ends at %d ms", v.hash, v.end)
		}
		s.data.drop(key, was)
		s.send(effect{args: []string{"DEL", key}})
	default:
		s.data.drop(key, was)
		s.send(effect{args: []string{"HDEL", key, theirs}})
	}
	s.lookAll()
	return why
}

// intruded notes that a lock has a key that is somebody else's.
func (r *register) intruded(name string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.strange == nil {
		r.strange = make(map[string][]strange)
	}
	r.strange[name] = append(r.strange[name], strange{time.Now(), time.Now().Add(d)})
}

// isStrange reports whether a lock has had a key that is somebody else's since then, and on a quorum whether
// the other members may not have been enough.
func (r *register) isStrange(name string, since time.Time) bool {
	return !r.outvoted(since) && slices.ContainsFunc(r.strange[name], func(s strange) bool { return s.to.After(since) })
}

// isAnyStrange reports whether one of some locks has.
func (r *register) isAnyStrange(names []string, since time.Time) bool {
	return slices.ContainsFunc(names, func(n string) bool { return r.isStrange(n, since) })
}

// isConflict reports whether a call may have been told that a lock has a key that is somebody else's. Names
// looks at all locks.
func (r *register) isConflict(c *call, err error) bool {
	if kindOf(err) != dlock.ErrConflict {
		return false
	}
	names := c.names
	if c.what == "names" {
		names = r.w.names()
	}
	return r.isAnyStrange(names, c.start.Add(-lingers))
}

// mayForgetStrange reports whether what b believes in may be gone because of such a key.
func (r *register) mayForgetStrange(b *belief) bool {
	return slices.ContainsFunc(r.strange[b.name], func(s strange) bool {
		return b.asked.Before(s.to) && time.Now().Before(s.to.Add(b.lasts()+reaction))
	})
}

// joinsOlder reports whether b is a reader beside one of its client from before somebody else had the key
// of the lock, or that was evicted, and with it the token: others have got greater ones since.
func (r *register) joinsOlder(b *belief) bool {
	lost := func(since time.Time) bool {
		return slices.ContainsFunc(r.strange[b.name], func(s strange) bool { return since.Before(s.to) }) ||
			slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "evict" && since.Before(t.to) && t.isAbout(b.name) })
	}
	return b.shared && slices.ContainsFunc(r.beliefs, func(o *belief) bool {
		return o != b && o.client == b.client && o.name == b.name && o.token == b.token && lost(o.asked)
	})
}
