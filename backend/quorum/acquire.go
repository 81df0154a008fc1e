package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// tryLimit bounds how long a request that must not wait asks again while the nodes do not
// agree that the lock is held: a release may be on its way to some of them. Where those that
// answer agree, or a writer waits at the front beside readers, who is refused has asked each of them once.
const tryLimit = 250 * time.Millisecond

// firstAnswer is how long enough nodes have for their first answer. They are not asked again
// meanwhile: nodes that are busy, or a machine that is, would only have more to do. It ends
// before the caller's own limit, so that the error says what each node did.
const firstAnswer = backend.FirstAnswer - answerMargin

// Acquire implements backend.Backend. Those who wait queue at one node, the same for
// all of them while it answers.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if b.maxTTL > 0 && r.TTL > b.maxTTL {
		return nil, backend.Fail(backend.ErrInvalidTTL, fmt.Errorf("%v is more than the quorum's greatest TTL, %v", r.TTL, b.maxTTL))
	}
	if !b.beginCall() {
		return nil, backend.ErrClosed
	}
	defer b.calls.Done()
	p := place{b: b}
	began, err := p.take(ctx, &r)
	if err != nil {
		return nil, err
	}
	defer p.leave(false)
	s := rounds{b: b, request: &r, began: began, backoff: backend.Backoff{Min: 20 * time.Millisecond}}
	for round := 0; ctx.Err() == nil; round++ {
		a := s.next(ctx, round)
		bh, v, err := a.decide(ctx, &p)
		if bh != nil {
			return bh, nil
		}
		a.abandon(ctx)
		if err := s.awaitNext(ctx, a, v, err); err != nil {
			return nil, err
		}
	}
	return nil, backend.WaitEnded(ctx, s.found)
}

// pause waits until something has changed, and for d at the most. It fails when ctx ends, or
// the backend. Found says that somebody has the lock.
func (b *Backend) pause(ctx context.Context, changed <-chan struct{}, d time.Duration, found bool) error {
	select {
	case <-changed:
	case <-time.After(d):
	case <-ctx.Done():
		return backend.WaitEnded(ctx, found)
	case <-b.closing:
		return backend.ErrClosed
	}
	return nil
}

// A phase says what an attempt waits for.
type phase uint8

const (
	// asking: all nodes were asked at once. Whether the lock is free is for the
	// front to say, and a majority decides.
	asking phase = iota

	// queueing: it waits in the queue of the front, and has asked nobody else.
	queueing

	// gathering: the front has granted, and it waits at the others for the rest.
	// Nobody else does, unless their front is another node.
	gathering
)

// A verdict is what has become of an attempt.
type verdict uint8

const (
	undecided   verdict = iota // the answers to come decide
	won                        // enough nodes have granted
	held                       // the lock is not free, and the request must not wait
	split                      // others have the nodes that are missing
	unavailable                // too few nodes answer
	ended                      // nobody waits for it any more
)

// An attempt is one round of an Acquire. Its front is the first node that answers, in
// an order of the nodes that all clients have in common for a name. Who waits, waits
// there, so that the votes are not split among those who come at once.
type attempt struct {
	*hold
	hash         uint32
	round        int
	phase        phase
	found        bool          // somebody has the lock, or had it in an earlier round
	unheard      bool          // the quorum has not answered in an earlier round
	queued       bool          // the front has had it wait
	began        time.Time     // of the present phase
	queuedFor    time.Duration // how long it has waited in the queue of the front, in the phases before
	pinged       time.Time     // when it was last seen whether the front is still there
	splitSince   time.Time     // since when only nodes are missing that others have; zero: not so
	splitTimeout time.Duration // how long that may last
}

// newAttempt returns the attempt of that round. It waits for nodes that others have for
// several times what a node takes to answer, the longer the more often that was not
// enough.
func (b *Backend) newAttempt(ctx context.Context, r backend.Request, round int) *attempt {
	a := &attempt{hold: b.newHold(ctx, r), hash: hashOf(r.Name), round: round}
	a.enter(asking)
	if a.asksInTurn() {
		a.splitTimeout = r.TTL / 3
		return a
	}
	d := max(8*time.Duration(b.paceOfMajority()), 10*time.Millisecond) << min(round, 6)
	a.splitTimeout = min(d/2+rand.N(d), time.Second, r.TTL/4)
	return a
}

// decide asks the nodes and waits until the lock is held or will not be in this
// round. It leaves p as soon as a node has answered.
func (a *attempt) decide(ctx context.Context, p *place) (*backend.Hold, verdict, error) {
	a.start()
	for {
		changed := a.changed.wait()
		a.mu.Lock()
		v, again := a.step(time.Now())
		bh, err := a.conclude(v)
		a.found = a.found || a.hasHolder()
		answered, heard := a.hasAnswer() || a.waitsForVoter(), a.heard
		a.mu.Unlock()
		if heard {
			p.leave(true)
		}
		if v != undecided {
			return bh, v, err
		}
		switch {
		case a.found:
			a.request.Queued()
		case answered:
			a.request.Answered()
		}
		if err := a.b.pause(ctx, changed, again, a.found); err != nil {
			return nil, ended, err
		}
	}
}

// hasAnswer reports whether the quorum has answered: enough nodes, or one where all are
// needed by a request that waits for the first before it asks the others. Called with a.mu held.
func (a *attempt) hasAnswer() bool {
	n := a.count().answered
	return n >= a.b.need || n > 0 && a.asksInTurn()
}

// waitsForVoter reports whether a node has answered that it does not vote yet, which the request waits for. Called
// with a.mu held.
func (a *attempt) waitsForVoter() bool {
	return a.request.Wait && slices.ContainsFunc(a.votes, func(v vote) bool { return v.state == notReady })
}

// asksInTurn reports whether a request that waits takes one node after the other.
func (a *attempt) asksInTurn() bool { return a.b.needsAll() && a.request.Wait }

// start asks all nodes, or leaves it to step to ask the front alone.
func (a *attempt) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.front = a.chooseFront()
	if a.phase == queueing {
		return
	}
	for i := range a.votes {
		a.ask(i, a.request.Wait && i == a.front)
	}
}

// step goes on as far as the answers allow, and says when to look again if none
// comes. Called with h.mu held, as all that it calls.
func (a *attempt) step(now time.Time) (verdict, time.Duration) {
	for {
		before, again := a.phase, a.expireAnswers(now)
		n := a.count()
		spare := len(a.votes) - a.b.need
		if n.out+n.silent > spare && a.askSpared() {
			continue
		}
		if n.out > spare {
			return unavailable, 0
		}
		v := undecided
		switch before {
		case asking:
			v = a.stepAsking(n)
		case queueing:
			v = a.stepQueueing()
			again = min(again, a.pingFront(now))
		case gathering:
			var left time.Duration
			v, left = a.stepGathering(n, now)
			again = min(again, left)
		}
		if v != undecided || a.phase == before {
			return v, min(again, a.expireAnswers(now)) // also for who has just been asked
		}
	}
}

func (a *attempt) stepAsking(n tally) verdict {
	if a.votes[a.front].isOut() || a.b.nodes[a.front].silent.Load() {
		a.front = a.chooseFront()
	}
	switch state := a.votes[a.front].state; {
	case state == granted && n.counting >= a.b.need:
		return won
	case state == granted && (n.refused > 0 || n.granted+n.coming < a.b.need):
		a.enter(gathering)
	case state == unasked: // its grant was lost on the way
		a.ask(a.front, a.request.Wait)
	case state != refused:
	case a.request.Wait:
		a.joinQueue()
	case n.answered >= a.b.need && n.refused > len(a.votes)-a.b.need:
		return held
	case n.answered >= a.b.need && a.votes[a.front].behind: // a writer comes first
		return held
	case n.answered >= a.b.need && (a.round == 0 || n.coming == 0):
		return split // the front is the last to hear of a release, or the first of the next hold
	case n.coming == 0:
		return unavailable
	}
	return undecided
}

// stepGathering waits for what is missing, for a while if others have it.
func (a *attempt) stepGathering(n tally, now time.Time) (verdict, time.Duration) {
	switch {
	case n.counting >= a.b.need:
		return won, 0
	case n.granted == 0:
		return split, 0
	}
	a.askRest()
	if a.asksInTurn() && a.giveWay() {
		return undecided, time.Minute
	}
	n = a.count()
	again := time.Minute
	if !a.request.Wait && n.refused > 0 { // nodes that answer late leave it no more time than silent ones
		if again = a.firstBy.Sub(now); again <= 0 {
			return held, 0
		}
	}
	if n.coming > 0 {
		a.splitSince = time.Time{}
		return undecided, again
	}
	if a.splitSince.IsZero() {
		a.splitSince = now
	}
	left := a.splitTimeout - now.Sub(a.splitSince)
	switch {
	case left > 0:
		return undecided, min(left, again)
	case a.request.Wait:
		return split, 0
	}
	return held, 0
}

// enter begins a phase.
func (a *attempt) enter(p phase) {
	a.queuedFor = a.timeQueued()
	a.phase, a.began = p, time.Now()
	a.pinged = a.began
}

// timeQueued is how long it has waited in the queue of the front.
func (a *attempt) timeQueued() time.Duration {
	if a.phase != queueing {
		return a.queuedFor
	}
	return a.queuedFor + time.Since(a.began)
}

// askRest asks the nodes that have not been asked to let this request wait, one after
// the other where all are needed.
func (a *attempt) askRest() {
	for i := range a.votes {
		v := &a.votes[i]
		if v.isMissing() {
			a.ask(i, true)
		}
		if a.asksInTurn() && v.state != granted {
			return
		}
	}
}

// askSpared asks the nodes that were not asked because others seemed to be enough, if those turn
// out not to be. It reports whether there were any. Nobody may have asked for a lock since they
// came back. Who waits in the queue of the front asks no other.
func (a *attempt) askSpared() (asked bool) {
	for i := range a.votes {
		if v := &a.votes[i]; v.err == errSpared && !v.isAsking() && !a.b.isSpared(a.b.nodes[i]) {
			v.state, v.err, asked = unasked, nil, true
			if a.phase != queueing {
				a.ask(i, a.request.Wait && i == a.front)
			}
		}
	}
	return asked
}

// expireAnswers takes for silent the nodes that have not answered as soon as they use
// to: nobody waits for them who can do without. It takes for failed those that have not
// in all the time there is. Both may yet answer. It returns when to look again.
func (a *attempt) expireAnswers(now time.Time) time.Duration {
	next, over := time.Minute, false
	if a.unheard && !a.queued && !a.hasAnswer() { // the next front has no more time than the first
		next = a.firstBy.Sub(now)
		over = next <= 0
	}
	for i := range a.votes {
		v, n := &a.votes[i], a.b.nodes[i]
		if over && (v.state == asked || v.state == unasked) {
			v.state, v.err = failed, errOverdue
		}
		if !v.isAwaited() {
			continue
		}
		left := v.query.since.Add(answerLimit(a.request.TTL)).Sub(now)
		if a.unheard {
			left = max(left, a.firstBy.Sub(now))
		}
		if a.keepsFront() && v.query.wasSilent && n.silent.Load() {
			left = min(left, v.query.since.Add(frontLimit).Sub(now))
		}
		if left <= 0 {
			v.state, v.err = failed, errOverdue
			if !v.query.heard {
				n.silent.Store(true)
			}
			continue
		}
		if usual := a.timeLeft(i, now); usual > 0 {
			left = min(left, usual)
		}
		next = min(next, left)
	}
	return next
}

// conclude turns a verdict into what Acquire returns. Called with h.mu held.
func (a *attempt) conclude(v verdict) (*backend.Hold, error) {
	switch v {
	case won:
		return a.win()
	case held:
		return nil, backend.ErrHeld
	case split:
		return nil, errSplit
	case unavailable:
		return nil, a.failure()
	}
	return nil, nil
}

// win makes a hold of what the nodes have granted. The others may still join it.
func (a *attempt) win() (*backend.Hold, error) {
	last := a.lease()
	if !time.Now().Before(deadline(last)) {
		if a.request.Wait {
			return nil, errSplit
		}
		return nil, backend.Fail(backend.ErrUnavailable, errTooLate)
	}
	a.held, a.believed = true, deadline(last)
	renewIn := max(a.renewAt().Sub(last.Sent), time.Millisecond)
	bh := &backend.Hold{Request: a.request, Token: a.token, Sent: last.Sent, Granted: last.Granted, RenewIn: renewIn, State: a.hold}
	asking := false
	for i := range a.votes {
		v := &a.votes[i]
		if v.isMissing() {
			a.joinLater()
		}
		asking = asking || v.isMissing() || v.isAsking()
		if h := v.hold; h != nil {
			bh.TellsWanted = bh.TellsWanted || h.TellsWanted
			bh.WantedAtOnce = bh.WantedAtOnce || h.WantedAtOnce
		}
	}
	if asking {
		a.lateTimer = time.AfterFunc(answerLimit(a.request.TTL), a.stop)
	} else {
		a.stop()
	}
	return bh, nil
}

// hasHolder reports that the nodes have said that somebody has the lock: the front, or
// another one and enough have answered, or any of those that a request asks one after the other,
// which it does not get beyond. Called with h.mu held.
func (a *attempt) hasHolder() bool {
	n := a.count()
	return a.queued || n.refused > 0 && (n.answered >= a.b.need || a.asksInTurn())
}

// readyIn returns when the first of the nodes that do not vote yet will, and whether there is
// one. Those that a request waits for are logged, each once until it votes.
func (a *attempt) readyIn() (in time.Duration, waits bool) {
	in = time.Second
	for i, left := range a.notReady() {
		in, waits = min(in, max(left, time.Millisecond)), true
		if a.request.Wait && !a.b.nodes[i].awaited.Swap(true) {
			a.b.log.Warn("dlock: Lock waits for a node of the quorum that does not vote yet, because it may have forgotten holds",
				"node", i+1, "until", time.Now().Add(left).Format(time.RFC3339))
		}
	}
	return in, waits
}

// notReady says when each node votes that does not yet.
func (a *attempt) notReady() map[int]time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := make(map[int]time.Duration)
	for i := range a.votes {
		if a.votes[i].state == notReady {
			left[i] = a.votes[i].readyIn
		}
	}
	return left
}
