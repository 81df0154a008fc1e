package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// chooseFront returns the first node in the order of the name that may grant the
// lock: one that answers as fast as the others, if there is one. It is -1 if there is
// none. Called with h.mu held.
func (a *attempt) chooseFront() int {
	second, first := -1, a.b.firstFront(a.hash)
	for k := range a.votes {
		i := (first + k) % len(a.votes)
		switch {
		case a.votes[i].isOut():
		case a.votes[i].state == granted || !a.b.isAway(i):
			return i
		case second < 0:
			second = i
		}
	}
	return second
}

// firstFront is the node with which the order of the nodes begins for a name.
func (b *Backend) firstFront(hash uint32) int {
	if b.needsAll() {
		return 0
	}
	return int(hash % uint32(len(b.nodes)))
}

// joinQueue waits at the front alone. It gives up what others may have granted: that is
// for whoever has the front.
func (a *attempt) joinQueue() {
	a.enter(queueing)
	a.queued = true
	a.b.contended.add(a.hash)
	for i := range a.votes {
		if i != a.front {
			a.leave(i)
		}
	}
}

// leave gives up what node i has granted, or is asked for.
func (a *attempt) leave(i int) {
	if v := &a.votes[i]; v.isAsking() || v.hold != nil {
		a.dropVote(i)
	}
}

// giveWay has a request that takes one node after the other keep none behind that at which it waits: whom
// another front has let in may have that one, and wait for those. It reports whether the request waits at
// the first node, where it keeps its place.
func (a *attempt) giveWay() bool {
	first := slices.IndexFunc(a.votes, func(v vote) bool { return v.state != granted })
	switch {
	case first < 0 || a.votes[first].state != refused:
		return false
	case first == 0:
		a.front = 0
		a.joinQueue()
		return true
	}
	for i := first + 1; i < len(a.votes); i++ {
		a.leave(i)
	}
	return false
}

// stepQueueing asks the front, and another node for it when it is away.
func (a *attempt) stepQueueing() verdict {
	if !a.checkFront() {
		return unavailable
	}
	v := &a.votes[a.front]
	switch {
	case v.state == granted:
		if !a.queued {
			a.b.contended.remove(a.hash)
		}
		a.proposeToFront()
		a.enter(gathering)
	case v.isMissing():
		a.ask(a.front, true)
	}
	a.queued = a.queued || v.refused
	return undecided
}

// checkFront moves on to another node if the front is away. It reports false if there
// is no other.
func (a *attempt) checkFront() bool {
	v := &a.votes[a.front]
	if n := a.b.nodes[a.front]; v.state == granted || !v.isOut() && !n.gone.Load() && !(v.state == asked && n.silent.Load()) {
		return true
	}
	before := v.state
	if !v.isOut() {
		v.state, v.err = failed, errSilent
	}
	out, why := v.state, v.err
	next := a.chooseFront()
	switch {
	case next < 0:
		return false
	case (before == asked || before == unasked && a.b.needsAll()) && a.b.isAway(next): // no other is any better
		v.state, v.err = before, nil
	default:
		a.dropVote(a.front)
		v.state, v.err = out, why
		a.front = next
	}
	return true
}

// firstPing and lastPing bound how often whoever waits sees whether the front is still
// there: the less often the longer it has waited, unless the front is silent.
const firstPing, lastPing = 20 * time.Millisecond, 2 * time.Second

// pingFront has the front pinged when it is time to, and says when it is.
func (a *attempt) pingFront(now time.Time) time.Duration {
	n, pause := a.b.nodes[a.front], firstPing
	if !n.silent.Load() {
		pause = min(max(now.Sub(a.began)/8, firstPing), lastPing)
	}
	if left := a.pinged.Add(pause).Sub(now); left > 0 {
		return left
	}
	a.pinged = now
	if n.isDue(pause) {
		n.check(a.b, a.request.TTL, a.notify)
	} else { // it is due when it has answered nothing since
		a.pinged = n.made.Add(time.Duration(n.answered.Load()))
	}
	if !a.b.needsAll() {
		a.pingOthers(n, pause/2, func() {}) // nothing waits for what they answer
	}
	return max(a.pinged.Add(pause).Sub(now), time.Millisecond)
}

// leaveLimit bounds the wait for nodes to know that a request was given up.
const leaveLimit = 250 * time.Millisecond

// abandon ends a hold that did not come about. It waits until the nodes that answer
// know of that: the next request, of anybody, shall not find the lock held or
// waited for by this one.
func (h *hold) abandon(ctx context.Context) {
	h.end()
	ctx, cancel := backend.Detach(ctx, min(answerLimit(h.request.TTL), leaveLimit))
	defer cancel()
	h.mu.Lock()
	for i := range h.votes {
		if v := &h.votes[i]; v.hold != nil {
			h.releaseVote(i, v.hold)
		}
	}
	h.mu.Unlock()
	for {
		changed := h.changed.wait()
		left := h.leaveTimeout()
		if left <= 0 || h.b.pause(ctx, changed, left, false) != nil {
			return
		}
	}
}

// leaveTimeout returns how long the nodes have to hear that the hold is given up: not
// at all once those that answer have.
func (h *hold) leaveTimeout() (left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.releasing > 0 {
		left = leaveLimit
	}
	for i := range h.votes {
		v, n := &h.votes[i], h.b.nodes[i]
		switch {
		case !v.isAsking() || n.silent.Load():
		case v.query.queued:
			left = leaveLimit
		default:
			left = max(left, h.timeLeft(i, time.Now()))
		}
	}
	return left
}
