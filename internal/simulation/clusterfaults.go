package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// hearsay is how long it takes until another node has heard of something.
func (w *world) hearsay() time.Duration {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return time.Duration(w.net.rnd.Int64N(int64(w.plan.Word) + 1))
}

// hearsMaster has a node know who is the master of a shard. One that was learns that it is
// none any more: it tells who is subscribed, and follows.
func (s *server) hearsMaster(shard int, c claim) {
	s.mu.Lock()
	n := s.node
	old := n.masters[shard]
	if old.epoch >= c.epoch {
		s.mu.Unlock()
		return
	}
	n.masters[shard] = c
	n.misses(shard)
	if joined, left := n.joined[s.index]; left && joined == shard && !n.alone {
		s.master = n.world.nodes[c.who]
	}
	demoted := shard == n.shard && old.who == s.index && c.who != s.index
	if demoted {
		s.drop(func(slot int) bool { return n.shardOf(slot) == shard })
		clear(n.leaving)
		clear(n.coming)
		clear(n.missed)
		n.goOn()
	}
	s.mu.Unlock()
	if demoted {
		n.world.nodes[c.who].followedBy(s, n.world.plan.Lag)
	}
}

// goOn lets scripts run that had to wait.
func (n *node) goOn() {
	if n.halted != nil {
		close(n.halted)
		n.halted = nil
	}
}

// hearsSlot has a node know which shard has a slot.
func (s *server) hearsSlot(slot int, c claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasHeardSlot(slot, c)
}

// hasHeardSlot is hearsSlot with mu held.
func (s *server) hasHeardSlot(slot int, c claim) {
	n := s.node
	if n.moved[slot].epoch >= c.epoch {
		return
	}
	before := n.shardOf(slot)
	n.moved[slot] = c
	delete(n.leaving, slot)
	delete(n.coming, slot)
	delete(n.missed, slot)
	if before == n.shard && c.who != n.shard {
		s.drop(func(o int) bool { return o == slot })
	}
}

// drop ends the subscriptions to channels of slots that are gone, and says so.
func (s *server) drop(isGone func(slot int) bool) {
	for topic, peers := range s.topics {
		if !isGone(slotOf(topic)) {
			continue
		}
		for p := range peers {
			delete(p.channels, topic)
			p.push("sunsubscribe", topic, int64(len(p.channels)))
		}
		delete(s.topics, topic)
	}
}

// elect has a replica be the master of its shard. The others hear of it, the master of
// before not before late.
func (w *world) elect(shard int, old, r *server, late time.Duration) {
	r.mu.Lock()
	follows := r.master == old
	r.mu.Unlock()
	if !follows || w.master(shard) != old {
		return
	}
	old.abandoned()
	c := claim{r.index, w.layout.nextEpoch()}
	old.mu.Lock()
	leaving, coming, moved := maps.Clone(old.node.leaving), maps.Clone(old.node.coming), maps.Clone(old.node.moved)
	old.mu.Unlock()
	if w.plan.Forgetful {
		w.forgetsMoves(shard, leaving, coming, late)
		clear(leaving)
		clear(coming)
	}
	r.mu.Lock()
	r.node.masters[shard] = c
	r.node.leaving, r.node.coming, r.node.moved = leaving, coming, moved
	r.mu.Unlock()
	r.promoted(nil)
	r.tell(w.names())
	masters := slices.Clone(w.masters())
	masters[shard] = r
	w.now.Store(&masters)
	r.tell(w.names())
	for _, o := range w.nodes {
		delay := w.hearsay()
		if o == old {
			delay += max(late, 0)
		}
		time.AfterFunc(delay, func() { o.hearsMaster(shard, c) })
	}
}

// tell says what a server has of all locks.
func (s *server) tell(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	for _, name := range names {
		t := s.read(name)
		has := t.token > 0 || len(t.readers) > 0 || len(t.queue) > 0 // where a slot moves some keys are elsewhere
		if has || s.truths[name].token > 0 {
			s.truths[name] = t
			s.saw(s, name, t)
		}
	}
}

// mostHalted is for how long a master waits for the replica that is to take its place.
const mostHalted = 10 * time.Second

// handOver is CLUSTER FAILOVER: scripts wait until the replica has everything, and the
// master knows that it has taken over.
func (w *world) handOver(shard int) {
	old := w.master(shard)
	old.mu.Lock()
	r := old.replica
	if r == nil || old.node.halted != nil {
		old.mu.Unlock()
		return
	}
	old.node.halted = make(chan struct{})
	old.mu.Unlock()
	time.AfterFunc(mostHalted, func() {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.node.goOn()
	})
	for first := true; first || !r.caughtUp(); first = false {
		if r.isBehind() {
			old.mu.Lock()
			defer old.mu.Unlock()
			old.node.goOn()
			return
		}
		time.Sleep(w.plan.Lag + time.Microsecond)
	}
	w.elect(shard, old, r, 0)
}

// How long nodes wait for one that is silent at most, and then for who takes its place.
const mostSilent = 5 * time.Second

func (f Fault) silence() (lost, elected time.Duration) {
	lost = min(f.Size, mostSilent)
	return lost, lost + lost/4 + 10*time.Millisecond
}

// replace has the replica of a master that the others miss take over with what it has.
// The master was killed, is stopped for a time, or does not hear of the others.
func (w *world) replace(shard int, f Fault) {
	old := w.master(shard)
	r := old.replica
	if r == nil || r.isForgotten() {
		return
	}
	lost, elected := f.silence()
	now := time.Now()
	back := now.Add(max(f.For, elected))
	switch f.Way {
	case 0:
		old.set(func() { old.faults.down = back })
		w.cut(old)
	case 1:
		old.set(func() { old.faults.paused = back })
	default:
		old.abandoned()
	}
	for _, o := range w.nodes {
		until := now.Add(elected + w.hearsay())
		if o == old {
			until = back.Add(w.plan.Word)
		}
		o.set(func() { o.faults.lonely, o.faults.together = now.Add(lost), until })
	}
	time.Sleep(elected)
	w.elect(shard, old, r, time.Until(back))
}

// takeOver is CLUSTER FAILOVER FORCE or TAKEOVER: the master is not asked.
func (w *world) takeOver(shard int) {
	if old := w.master(shard); old.replica != nil && !old.replica.isForgotten() {
		w.elect(shard, old, old.replica, 0)
	}
}

// separate has all nodes say that the cluster is down.
func (w *world) separate(f Fault) {
	now := time.Now()
	for _, s := range w.nodes {
		s.set(func() { s.faults.lonely, s.faults.together = now, now.Add(f.For) })
	}
}

// shift has a slot that a lock is in move to another shard, and back if the fault goes
// both ways.
func (w *world) shift(f Fault) {
	defer w.layout.operates()()
	rnd := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.At)))
	slot, end, found := w.layout.takes(w.slotsAt(f.Server), rnd.IntN)
	if !found {
		return
	}
	defer end()
	to := (f.Server + 1 + rnd.IntN(shards-1)) % shards
	to = w.layout.nextTo(to, f.Server)
	if w.carry(slot, f.Server, to, f.For, rnd) && f.Way == 2 {
		w.rests(f.Size)
		w.carry(slot, to, f.Server, f.For, rnd)
	}
}

// steps is in how many steps the keys of a lock move at most.
const steps = 5

// carry moves a slot: a few keys at a time, and then all nodes hear where it is. It reports whether the slot
// has arrived.
func (w *world) carry(slot, from, to int, takes time.Duration, rnd *rand.Rand) bool {
	if w.plan.Atomic {
		w.carryAtOnce(slot, from, to, takes, rnd)
		return true
	}
	w.layout.move(slot, to, false)
	for _, kind := range []string{"slot-move", "word"} {
		if kind == "slot-move" || w.costsLeases(Fault{Kind: "slot-move"}) {
			w.reg.opens(touched{kind: kind, client: -1, server: from, from: time.Now(), to: time.Now().Add(unmended), slots: []int{slot}, open: true})
		}
	}
	defer w.reg.mended(slot, w.plan.Word+4*w.plan.Lag)
	w.opensMove(slot, from, to)
	w.reg.tell(-2, "slot %d begins to move from shard %d to %d", slot, from, to)
	some := func(keys []string) []string { return keys }
	if rnd.IntN(2) == 0 {
		some = func(keys []string) []string { return []string{keys[rnd.IntN(len(keys))]} }
	}
	for more := true; more; {
		w.rests(takes / steps)
		w.awaitMasters(from, to)
		if w.isAway(slot, from, to) && !w.mend(slot, from, to, takes, rnd) {
			return false
		}
		more = w.master(from).give(w.master(to), slot, w.names(), some)
	}
	w.settles(slot, to, w.master(to), w.master(from))
	w.reg.tell(-2, "slot %d is in shard %d", slot, to)
	return true
}

// rests has who moves a slot wait. Once all clients are closed nobody does, so that the move ends with the world.
func (w *world) rests(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.freed:
	}
}

// opensMove has the masters of two shards know that a slot moves from one to the other.
func (w *world) opensMove(slot, from, to int) {
	open := func(s *server, change func(n *node)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		change(s.node)
	}
	open(w.master(to), func(n *node) { n.coming[slot] = from })
	open(w.master(from), func(n *node) { n.leaving[slot], n.importers[slot] = to, w.master(to).index })
}

// awaitMasters waits until the masters of two shards can take part in moving keys.
func (w *world) awaitMasters(from, to int) {
	for !w.master(from).moves() || !w.master(to).moves() {
		time.Sleep(20 * time.Millisecond)
	}
}

// settles has all nodes hear which shard has a slot, those first that it concerns.
func (w *world) settles(slot, shard int, first ...*server) {
	c := claim{shard, w.layout.nextEpoch()}
	for _, s := range first {
		s.hearsSlot(slot, c)
	}
	w.layout.move(slot, shard, true)
	for _, s := range w.nodes {
		time.AfterFunc(w.hearsay(), func() { s.hearsSlot(slot, c) })
	}
}

// moves reports whether a server can take part in moving keys.
func (s *server) moves() bool {
	s.mu.Lock()
	halted := s.node.halted != nil
	s.mu.Unlock()
	return s.accepts() && s.pause() <= 0 && !halted
}

// give moves some keys of a slot, and reports whether there may be more.
func (s *server) give(to *server, slot int, names []string, some func(keys []string) []string) bool {
	first, second := s, to
	if s.index > to.index {
		first, second = to, s
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	return s.gives(to, slot, names, some)
}

// gives is give with the mutexes of both held.
func (s *server) gives(to *server, slot int, names []string, some func(keys []string) []string) bool {
	s.data.now, to.data.now = s.clock().UnixMilli(), to.clock().UnixMilli()
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(s.data.values)) {
		if slotOf(k) == slot && s.data.get(k) != nil {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return false
	}
	for _, k := range some(keys) {
		v := s.data.get(k).copy()
		if v.end > 0 {
			v.end += to.data.now - s.data.now
		}
		to.data.values[k] = v
		to.send(effect{key: k, value: v.copy()})
		delete(s.data.values, k)
		s.send(effect{args: []string{"DEL", k}})
	}
	for _, name := range names {
		if slotOf(lockKey(name)) == slot { // the server that gets it first: each key is on one
			to.look(name, false)
			s.look(name, false)
		}
	}
	return true
}

// lasts is for how long a fault of the cluster has an effect.
func (w *world) lasts(f Fault) time.Duration {
	heard := w.plan.Word + 4*w.plan.Lag
	switch f.Kind {
	case "promotion":
		_, elected := f.silence()
		return max(f.For, elected) + heard
	case "slot-move":
		return 2*f.For + f.Size + heard
	case "cluster-down":
		return f.For
	case "lesser":
		return f.Size + heard
	}
	return heard
}

// costsLeases reports whether a fault of the cluster that is to cost no lease lasts longer
// than one can wait, or keeps the replicas of who renews it from being asked.
func (w *world) costsLeases(f Fault) bool {
	return f.Kind == "slot-move" && w.plan.Acks && !w.plan.Atomic || 6*w.lasts(Fault{}) > w.plan.leastTTL()
}
