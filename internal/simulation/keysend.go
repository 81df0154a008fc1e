package simulation

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// What keys last for: that of a free lock as long as its token is kept, and a tenth more, so
// that not each lease has to see to it.
const keptFree = 10*time.Minute + time.Minute

// keysEnd checks what is left on the servers when all clients are closed and what they were
// about is over. Every key but that of the server itself ends by itself: the state of a lock
// is the one residue that is allowed, for as long as its token is kept. Nobody is said to be
// waiting who is not in the queue, and nobody listens any more.
func (w *world) keysEnd() {
	if !w.hasServers() {
		return
	}
	r := w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range w.masters() {
		s.mu.Lock()
		w.ends(s)
		w.isHeard(s)
		s.mu.Unlock()
	}
}

// ends is called with the mutexes of the register and of the server held.
func (w *world) ends(s *server) {
	s.data.now = s.clock().UnixMilli()
	longest := s.data.now + (keptFree + w.plan.longestHold() + w.steppedBack() + w.plan.wanders()).Milliseconds()
	for _, key := range slices.Sorted(maps.Keys(s.data.values)) {
		v := s.data.get(key)
		switch {
		case v == nil, key == "dlock:boot", w.reg.handled[key]:
		case v.end == 0:
			w.reg.violate("keys end", "s%d: %s never does: %v %v", s.index, key, v.hash, v.set)
		case v.end > longest:
			w.reg.violate("keys end", "s%d: %s ends in %d s", s.index, key, (v.end-s.data.now)/1000)
		case strings.HasSuffix(key, ":a") && !w.evicts() && !w.reg.parted(key):
			queue := s.data.get(strings.TrimSuffix(key, "a") + "q")
			for _, m := range v.set {
				if queue == nil || queue.index(m.name) < 0 {
					w.reg.violate("keys end", "s%d: %s has %s, which does not wait", s.index, key, m.name)
				}
			}
		}
	}
}

// evicts reports whether a server may have deleted one key of a lock and not the others, which
// the library does without: a queue that is gone leaves who waited there to the end of its key.
// While a slot moves a node that loses its data has some keys of a lock, and another has the rest.
func (w *world) evicts() bool {
	has := func(kinds ...string) bool {
		return slices.ContainsFunc(w.plan.Faults, func(f Fault) bool { return slices.Contains(kinds, f.Kind) })
	}
	return has("evict", "foreign", "by-hand", "swap") || has("slot-move") && has("flush", "restart-empty", "restart-old", "promotion", "takeover", "lesser")
}

// parted reports whether the keys of a lock, one of which is key, have been on two nodes without either knowing of
// the other: a replica took over that did not know that their slot moves.
func (r *register) parted(key string) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind == "forgotten-slot" && slices.Contains(t.slots, slotOf(key))
	})
}

// isHeard checks that nobody listens. A server that has not heard of the end of a connection
// goes on telling it, also one that was slow to hear or did nothing as it was ended.
func (w *world) isHeard(s *server) {
	closed := time.Now().Add(-2 * lingers)
	ends := []string{"half-dead", "die", "hole", "hole-reset", "half-open", "cut"}
	if w.plan.Forgets > 0 || slices.ContainsFunc(w.reg.touches, func(t touched) bool { return slices.Contains(ends, t.kind) || t.to.After(closed) }) {
		return
	}
	for topic, peers := range s.topics {
		for p := range peers {
			w.reg.violate("keys end", "s%d: %s is subscribed to %s", s.index, p.name, topic)
		}
	}
}
