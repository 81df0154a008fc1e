package pg

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// An ask is the question to the server whether this client may have a lock.
// Readers who come while it is under way share it. It is in one of four states:
//
//	trying     a statement that does not wait is under way, or is to be sent
//	queued     a statement is in the server's queue, on a session of its own
//	listening  those who give the lock back tell; each time a try follows
//	settled    there is an answer
//
// What happens leads from one to the next:
//
//	            trying            queued           listening
//	granted     settled           settled          settled
//	held        queued, or if     -                listening
//	            there is no room
//	            to: listening
//	slice over  -                 queued           -
//	before an   held              queued           listening
//	elder
//	room        -                 -                queued
//	no answer   trying, later     trying, later    trying, later
//	unwanted    settled           settled          settled
//
// Held settles an ask of which nobody waits, and so does a failure that is no
// passing one. "Room" is a session that may wait, see takeRoom. The caller who comes
// first takes the first steps; the rest is done by a goroutine of the ask, which
// also goes on when that caller has left.
//
// The backend's mutex guards what changes.
type ask struct {
	backend *Backend
	place   *place
	shared  bool
	fixed   bool
	ttl     time.Duration
	lease   time.Duration // of the sessions that it uses
	since   time.Time     // when it came

	interest int  // requests that want the answer
	patient  int  // those of them that wait for the lock
	heard    bool // the server has answered
	held     bool // the server has said that somebody else holds the lock
	ctx      context.Context
	cancel   context.CancelFunc // nil until the ask has a goroutine
	news     chan struct{}      // closed when heard, held or the answer changes
	grant    *grant             // the answer is one of these
	err      error

	// Only whoever does the next step uses these.
	state    state
	hasRoom  bool     // to be queued
	waiter   *session // that is queued, or was in the last slice
	listener *session // that is told
	claimant *session // that has the claim
	ticket   int64    // of the claim, 0 if there was none yet
	stale    bool     // a session that had served before has ended under a statement
	begun    time.Time
	pause    backend.Backoff // between attempts that got no answer
	yields   backend.Backoff // between attempts that an elder came before

	wake chan struct{} // receives when the lock may be free; nil: it does not listen
	room chan struct{} // receives when it may be queued
}

type state uint8

const (
	trying state = iota
	queued
	listening
	settled
)

// A question is a statement that is under way for an ask.
type question struct {
	session *session
	call    *call
	readers *grant // to be joined, if the call is a probe
	asked   time.Time
	arrived bool // the answer has been received
}

// lead begins a. The caller makes the first try by itself, so that a lock that is
// free costs no goroutine, and waits by itself if there is a session at hand to
// wait on: that spares the switches to another goroutine and back, which are most
// of what a hand-over between busy clients costs.
func (a *ask) lead(ctx context.Context, r *backend.Request) {
	a.begun = time.Now()
	q := a.opening(r)
	for q != nil {
		if !a.drive(ctx, q) || !q.isPlain(a) {
			break
		}
		a.decide(a.result(q))
		switch q = nil; {
		case a.state == settled:
			return
		case a.state == queued && r.Wait:
			r.Queued()
			q = a.queueAtOnce()
		}
	}
	a.run(q)
}

// opening is the first question of a. A lock that was lately found held is waited
// for at once.
func (a *ask) opening(r *backend.Request) *question {
	if r.Wait && !a.shared && a.backend.isHot(a.place.key) {
		if q := a.queueAtOnce(); q != nil {
			return q
		}
	}
	return a.tryAtOnce()
}

// drive sends q and waits for the answer. It reports false if the caller has to
// leave before.
func (a *ask) drive(ctx context.Context, q *question) bool {
	var until time.Time
	switch {
	case !q.call.op.waits():
		until = a.begun.Add(backend.FirstAnswer)
	case !a.isHeard():
		until = a.begun.Add(unheard)
	}
	if q.session.drive(ctx, q.call, until) {
		return true
	}
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-q.call.done:
		q.arrived = true
	case <-ctx.Done():
	case <-a.backend.ctx.Done():
	case <-late:
	}
	return q.arrived
}

// isPlain reports whether the answer leads on without asking the server again.
func (q *question) isPlain(a *ask) bool {
	c := q.call
	return c.err == nil && c.value >= 0 && q.readers == nil && !(c.op.waits() && isOld(c.sent, a.ttl))
}

// run makes a go on in a goroutine of its own: with q, if that is not nil.
func (a *ask) run(q *question) {
	b := a.backend
	b.mu.Lock()
	a.ctx, a.cancel = context.WithCancel(b.ctx)
	if a.interest == 0 {
		a.cancel()
	}
	b.mu.Unlock()
	loop := func(closing context.Context) { a.loop(closing, q) }
	if !b.janitor.Go(loop) {
		loop(b.ctx) // which has ended: it ends at once
	}
}

// loop takes one step after the other until a is settled.
func (a *ask) loop(closing context.Context, q *question) {
	a.pause = backend.Backoff{Min: 2 * time.Millisecond, Max: 250 * time.Millisecond}
	a.yields = backend.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	for a.state != settled {
		var err error
		if q == nil {
			q, err = a.next()
		}
		if q != nil {
			a.wait(closing, q)
			err = a.result(q)
			q = nil
		}
		a.decide(err)
	}
}

// next asks the next question, or says why there is none: errAgain if the state has
// changed.
func (a *ask) next() (*question, error) {
	switch a.state {
	case queued:
		return a.queue()
	case listening:
		return a.listen()
	}
	q, err := a.prepareTry(a.ctx)
	if err == nil {
		q.session.start(q.call)
	}
	return q, err
}

// wait waits for the answer to q, if it may take as long as a slice. A wait in the
// queue is taken back when nobody wants the lock any more. Before its slice is over, a
// claim is made.
func (a *ask) wait(closing context.Context, q *question) {
	if q.arrived || !q.call.op.waits() {
		return
	}
	var due, silent <-chan time.Time
	pause := backend.Backoff{Min: unheard, Max: time.Second}
	if !a.isHeard() {
		silent = time.After(time.Until(a.begun.Add(pause.Next())))
	}
	if a.needsClaim() {
		timer := time.NewTimer(time.Until(q.asked.Add(a.backend.opts.Slice * 3 / 4)))
		defer timer.Stop()
		due = timer.C
	}
	for {
		select {
		case <-q.call.done:
			q.arrived = true
			return
		case <-due:
			due = nil
			a.makeClaim()
		case <-silent:
			silent = nil
			if !a.seeHeld(q) {
				silent = time.After(pause.Next())
			}
		case <-a.ctx.Done():
			q.takeBack(closing, a.ttl)
			return
		}
	}
}

// unheard is how long a wait that has never had an answer goes on until the server is
// asked whether the lock is held: no answer is no word.
const unheard = 25 * time.Millisecond

// seeHeld asks on another connection whether the lock that q waits for is held, and
// reports whether that is known. To see that disturbs nobody who asks for a free lock
// but for the moment that it takes.
func (a *ask) seeHeld(q *question) bool {
	b := a.backend
	s := b.sharedSoon(line{a.lease, holding})
	if s == nil {
		return false
	}
	defer b.leave(s)
	look := newCall(probe, q.call.arg)
	s.start(look)
	select {
	case <-look.done:
	case <-q.call.done:
		q.call.done <- struct{}{}
		return true
	case <-a.ctx.Done():
		return true
	}
	if look.err != nil || look.value != 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.noteHeld()
	return true
}

func (a *ask) isHeard() bool {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	return a.heard
}

// takeBack ends a wait that is in vain. If the server does not say that it has ended,
// the session is.
func (q *question) takeBack(closing context.Context, ttl time.Duration) {
	ctx, cancel := backend.Bound(closing, ttl)
	defer cancel()
	q.session.cancel(ctx)
	select {
	case <-q.call.done:
		q.arrived = true
	case <-ctx.Done():
		q.session.kill(errSilent)
	}
}

// tryOp says what a try asks, and of which session.
//
// A session that has a shared lock gets it again whoever waits, so that writers of
// other clients would starve; whether readers may join is asked by a session that
// does not have it.
func (a *ask) tryOp() (op, *grant, purpose) {
	if b := a.backend; a.shared {
		b.mu.Lock()
		readers := a.place.readers(a.lease)
		if readers == nil && b.lines[line{a.lease, holding}] == nil && !b.mayConnect(holding) {
			readers = a.place.readers(0) // whose session this one would share
		}
		b.mu.Unlock()
		if readers != nil {
			return probe, readers, aside
		}
	}
	return tryOp(a.shared), nil, holding
}

func (a *ask) prepareTry(ctx context.Context) (*question, error) {
	o, readers, to := a.tryOp()
	s, err := a.backend.shared(ctx, line{a.lease, to})
	if err != nil {
		return nil, err
	}
	return &question{session: s, call: newCall(o, a.place.key), readers: readers}, nil
}

// tryAtOnce is prepareTry for when the session is there already. It returns nil if
// there is none, and has it made.
func (a *ask) tryAtOnce() *question {
	o, readers, to := a.tryOp()
	s := a.backend.sharedSoon(line{a.lease, to})
	if s == nil {
		return nil
	}
	return &question{session: s, call: newCall(o, a.place.key), readers: readers}
}

// result takes the answer to q, and gives back what was needed for it unless that
// is the lock. Its error is ErrHeld if the lock is held.
func (a *ask) result(q *question) error {
	if !q.arrived {
		<-q.call.done
	}
	defer calls.Put(q.call)
	s, c := q.session, q.call
	err := a.outcome(q)
	if c.op.waits() {
		a.endSlice(err)
		return err
	}
	if err != nil || q.readers != nil {
		a.backend.leave(s)
	}
	return err
}

func (a *ask) outcome(q *question) error {
	s, c := q.session, q.call
	if c.err == nil && c.value == disputed {
		a.dispute(s, c)
	}
	switch {
	case c.err != nil:
		return a.failed(s, c)
	case c.value == 0:
		return backend.ErrHeld
	case q.readers != nil:
		return a.joined(q.readers)
	case c.op.waits() && isOld(c.sent, a.ttl):
		// The lease counts from when the wait began: it is to be proven anew.
		proof := s.renew(time.Now())
		<-proof.done
		if proof.err != nil {
			s.kill(proof.err)
			return classify(proof.err)
		}
		return a.granted(s, proof.sent, c.value, true)
	}
	return a.granted(s, c.sent, c.value, c.op.waits())
}

func isOld(sent time.Time, ttl time.Duration) bool { return time.Since(sent) > ttl/4 }

// failed gives back what c may have taken although it failed, and returns why it
// failed. That a wait was too long, or was cancelled, is the server's word that the
// lock is held. A session that had served before and was ended just then has no
// locks any more: nothing keeps the ask from trying another.
func (a *ask) failed(s *session, c *call) error {
	if o := c.op.undo(); o != ops && s.survived(c.err) {
		s.giveBack(o, c.arg)
	}
	if c.op.waits() {
		switch codeOf(c.err) {
		case lockNotAvailable, queryCanceled, deadlockDetected:
			return backend.Fail(backend.ErrHeld, c.err)
		}
	}
	if !a.stale && s.wasEnded(c.err) {
		a.stale = true
		return errAgain
	}
	return classify(c.err)
}

// giveBack gives back what the session may have of key. A cancel request that came
// late may hit the first statement.
func (s *session) giveBack(o op, key int64) {
	had, err := s.run(o, key, 0)
	for codeOf(err) == queryCanceled {
		had, err = s.run(o, key, 0)
	}
	switch {
	case err != nil:
		s.kill(err)
	case had == 1:
		s.tellListeners(key)
	}
}

// joined adds those of a to the readers that g has, once the lease of g has been
// proven lately.
func (a *ask) joined(g *grant) error {
	fresh := time.Now()
	if !a.fixed {
		fresh = fresh.Add(-a.ttl / 10)
	}
	proof := g.session.renew(fresh)
	<-proof.done
	a.withdraw()
	a.stopListening()
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.over || g.pending != nil || proof.err != nil {
		return errAgain
	}
	g.sent = proof.sent
	a.settle(g, nil)
	return nil
}

// granted answers a with a lock that s has got.
func (a *ask) granted(s *session, sent time.Time, number int64, waited bool) error {
	a.withdraw()
	a.stopListening()
	b := a.backend
	b.mu.Lock()
	if _, lives := b.live[s]; !lives {
		b.mu.Unlock()
		return backend.Fail(backend.ErrUnavailable, errSilent)
	}
	g := &grant{place: a.place, session: s, shared: a.shared, token: uint64(number), sent: sent}
	g.holds = g.room[:0]
	s.single = waited
	s.grants[g] = struct{}{}
	g.place.grants = append(g.place.grants, g)
	unwanted := a.interest == 0
	if unwanted {
		g.pending = newOutcome()
	}
	a.settle(g, nil)
	b.mu.Unlock()
	if unwanted {
		g.session.start(g.unlock())
	}
	return nil
}

// decide takes the result of a step and sets the next state: nil is an answer,
// ErrHeld the server's word that the lock is held, and errAgain no word at all.
func (a *ask) decide(err error) {
	answered := err == nil || err == errAgain || isHeld(err)
	if b := a.backend; err != nil {
		b.mu.Lock()
		held := isHeld(err)
		if held {
			a.noteHeld()
		}
		switch {
		case b.closed:
			a.giveUp(backend.ErrClosed)
			return
		case a.abandoned(), a.patient == 0 && err != errAgain,
			!answered && !passing(err), !answered && !a.heard && time.Since(a.begun) > backend.FirstAnswer:
			a.giveUp(err)
			return
		}
		b.mu.Unlock()
		switch {
		case err == errAgain:
		case !held:
			a.state = trying
		case a.state == trying:
			a.state = a.afterHeld()
		}
	}
	if !answered && a.ctx != nil {
		backend.Sleep(a.ctx, a.pause.Next())
	}
}

// giveUp settles a without a lock, once nothing is left of it on the server. It is
// called with b.mu held and returns without.
func (a *ask) giveUp(err error) {
	b := a.backend
	b.mu.Unlock()
	a.withdraw()
	a.leaveQueue()
	a.stopListening()
	b.mu.Lock()
	a.settle(nil, err)
	b.mu.Unlock()
}

// noteHeld is called with b.mu held.
func (a *ask) noteHeld() {
	a.backend.warm(a.place.key)
	if !a.held {
		a.held, a.heard = true, true
		a.tell()
	}
}

// tell wakes those who follow. It is called with b.mu held.
func (a *ask) tell() {
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
}

// settle ends a with an answer. It is called with b.mu held.
func (a *ask) settle(g *grant, err error) {
	a.grant, a.err, a.state = g, err, settled
	if g != nil {
		g.users += a.interest
	}
	if a.cancel != nil {
		a.cancel()
	}
	a.place.ask = nil
	a.tell()
	a.backend.tidy(a.place)
}

func (a *ask) settled() bool { return a.grant != nil || a.err != nil }

func isHeld(err error) bool { return errors.Is(err, backend.ErrHeld) }
