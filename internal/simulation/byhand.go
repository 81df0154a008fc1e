package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Somebody has their hands on the keys of locks. A key that is renamed, or put in the place of another, takes a hold
// or a queue away as one does that is deleted, and may bring back what was there before; the documentation promises
// for none of these more than for an eviction: it is lost, and known to be at the next renewal. A time to live that is
// taken away, or made longer, takes nothing from anybody: when a hold ends stands in the key, and not in its time to
// live. A key may stay for ever by that, and blocks nobody. One that is made shorter ends as one does that is evicted,
// unless the library prolongs it before.

func init() {
	maps.Copy(furtherKinds, map[string]touch{
		"by-hand": {loses: true},             // one key: what may be lost is that of its lock, and of no other
		"swap":    {loses: true, data: true}, // SWAPDB with a database that is empty, and back
	})
	for _, k := range []string{"by-hand", "swap"} {
		kinds[k] = furtherKinds[k]
		keepsConnections = append(keepsConnections, k)
		local = append(local, k)
	}
}

// What is done by hand, as the size of a fault says it.
const (
	persist = iota
	expireLater
	expireSooner
	renameAway    // and back, if the fault goes both ways
	renameToOther // to the key of another lock; in a cluster that is in another slot
	copyToOther
	restore // what was dumped before
	deeds
)

// handles draws such deeds in a part of the plans that have faults.
func (g *generator) handles() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 245))}
	p := g.plan
	if p.Backend != "redis" || len(p.Faults) == 0 || !g.often(8) {
		return
	}
	places := p.Faults
	if g.often(70) {
		p.Faults = nil
	}
	for range 1 + g.IntN(6) {
		f := Fault{Kind: "by-hand", At: g.within(0, p.Length), For: g.within(0, min(3*p.TTL, longest)), Client: -1, Way: g.IntN(3), Steps: g.IntN(deeds)}
		if f.Server = max(pick(g.draw, places...).Server, 0); p.Cluster {
			f.Server = g.shard()
		} else if g.often(15) {
			f.Kind = "swap"
		}
		if g.often(40) {
			f.Trigger = g.trigger()
		}
		p.Faults = append(p.Faults, f)
	}
}

// suffix is what follows the first key of a lock in another of its keys.
func suffix(key string) string {
	_, rest, _ := strings.Cut(key, "}")
	return rest
}

// handle has somebody do something to a key.
func (w *world) handle(f Fault) {
	rnd := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.At)))
	s := w.master(f.Server)
	key, v := s.anyKey(rnd)
	if v == nil {
		return
	}
	name := locksOf([]string{key})[0]
	others := slices.DeleteFunc(slices.Clone(w.names()), func(n string) bool { return n == name || w.layout != nil })
	end := s.endIn(f.For)
	w.reg.tell(-2, "by hand: deed %d to %s of s%d", f.Steps, key, s.index)
	switch {
	case f.Steps == persist:
		w.reg.staysForEver(key)
		s.puts(key, v.ending(0))
	case f.Steps == expireLater:
		w.reg.staysForEver(key)
		s.puts(key, v.ending(end+(24*time.Hour).Milliseconds()))
	case f.Steps == expireSooner:
		w.reg.intruded(name, f.For+10*time.Millisecond)
		s.puts(key, v.ending(end))
		_ = sleep(w.over, f.For+2*time.Millisecond)
		s.passes()
	case (f.Steps == renameToOther || f.Steps == copyToOther) && len(others) > 0:
		other := others[rnd.IntN(len(others))]
		// Its holder is that of another lock, until its lease ends. Who waits for that, and is let in at this one, is
		// told so by its id, and finds out that it has nothing as it asks: as where somebody who may read the keys
		// publishes grants (docs/security.md).
		w.reg.intruded(other, 2*w.plan.TTL)
		w.reg.intruded(name, 2*w.plan.TTL)
		if f.Steps == renameToOther {
			s.puts(key, nil)
		}
		w.reg.inherits(other, key, lockKey(other)+suffix(key))
		w.reg.putsBack(other, suffix(key), v)
		s.puts(lockKey(other)+suffix(key), v)
	default:
		w.reg.intruded(name, f.For)
		if f.Steps != restore {
			s.puts(key, nil)
		}
		if sleep(w.over, f.For); f.Way == 2 || f.Steps == restore {
			w.reg.intruded(name, 2*w.plan.TTL) // likewise
			w.reg.inherits(name, key, key)
			w.reg.putsBack(name, suffix(key), v)
			for _, s := range w.keepers(name)[:1] {
				s.puts(key, v)
			}
		}
	}
}

// swap has a database be empty for a time in place of the one with all locks.
func (w *world) swap(f Fault) {
	s := w.master(f.Server)
	had := s.save()
	s.flush()
	_ = sleep(w.over, f.For)
	if s := w.master(f.Server); f.Way != 0 {
		w.reg.mu.Lock()
		w.reg.note(-2, "the database is back")
		w.reg.mu.Unlock()
		s.becomes(had)
	}
}

// becomes has a server have other data.
func (s *server) becomes(data *store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.getsOlder(data)
	s.data.now = s.clock().UnixMilli()
	s.resync()
	s.lookAll()
}

// anyKey is one of the keys of locks that a server has, with what it has there.
func (s *server) anyKey(rnd *rand.Rand) (string, *value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(s.data.values)), func(k string) bool {
		v := s.data.get(k)
		return len(locksOf([]string{k})) == 0 || v == nil || v.text || v.hash[theirs] != "" // what is another's stays as it is
	})
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[rnd.IntN(len(keys))]
	return key, s.data.get(key).copy()
}

// endIn is a time by the clock of the server, in ms.
func (s *server) endIn(d time.Duration) int64 { return s.clock().Add(d).UnixMilli() }

// ending is v with another time to live.
func (v *value) ending(end int64) *value {
	v.end = end
	return v
}

// puts has a key have a value, or be gone.
func (s *server) puts(key string, v *value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	if v == nil {
		delete(s.data.values, key)
		s.send(effect{args: []string{"DEL", key}})
	} else {
		s.data.values[key] = v.copy()
		s.send(effect{key: key, value: v.copy()})
	}
	s.lookAll()
}

// inherits notes that a key of a lock has what was in another, or in itself before, and the time to live of that.
func (r *register) inherits(name, from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isCopied == nil {
		r.isCopied = make(map[string]bool)
	}
	r.isCopied[name] = true
	if r.handled[from] {
		r.handled[to] = true
	}
}

// isByHand reports whether a lock has had a key that somebody has put there by hand since then.
func (r *register) isByHand(name string, since time.Time) bool {
	return r.isStrange(name, since) && slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "by-hand" })
}

// staysForEver notes that a key may stay longer than the library has it stay.
func (r *register) staysForEver(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handled == nil {
		r.handled = make(map[string]bool)
	}
	r.handled[key] = true
}
