package pg

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// An attempt is what this client does to get one lock. Readers who come while it is
// under way share it. It is in one of four states:
//
//	trying     a statement that does not wait is under way, or is to be sent
//	queued     a statement is in the server's queue, on a session of its own
//	listening  it waits for the notification that the lock is free, and tries then
//	done       it has a grant or an error
//
// An event leads to the next state:
//
//	event           trying           queued           listening
//	granted         done             done             done
//	held            queued, or       -                listening
//	                listening if no
//	                slot is free
//	slice over      -                queued           -
//	older claim     as held          queued           listening
//	slot offered    -                -                queued
//	no connection   trying, later    listening        trying, later
//	no answer       trying, later    trying, later    trying, later
//	nobody wants it done             done             done
//
// If no request of the attempt waits, held is done. So is an error after which another
// try makes no sense. A slot is the right to have a session that waits: see wait.go.
//
// The request that comes first starts the attempt in its own goroutine. What that
// cannot finish is continued by a goroutine of the attempt, which goes on when the
// request has left.
//
// The mutex of the backend guards what several goroutines use.
type attempt struct {
	backend *Backend
	lock    *localLock
	shared  bool
	ttl     time.Duration
	lease   time.Duration // of the sessions that it uses
	since   time.Time     // when it came

	requests  int  // requests that want the answer
	waiters   int  // those of them that wait for the lock
	fixed     bool // one of them asks for a hold that is not renewed
	answered  bool // the server has answered
	foundHeld bool // the server has said that somebody else holds the lock
	ctx       context.Context
	cancel    context.CancelFunc // nil until the attempt has a goroutine
	progress  chan struct{}      // closed when answered, foundHeld, grant or err changes
	grant     *grant             // the result is this or err
	err       error

	// Only the goroutine that takes the next step uses these.
	state         state
	hasSlot       bool      // a session of this attempt may wait
	queueSession  *session  // that waits, or did so in the last slice
	listenSession *session  // that gets the notifications
	claimSession  *session  // that has the claim
	wantSession   *session  // that says that this waits
	announced     time.Time // when that was tried last
	ticket        int64     // of the claim, 0 if there was none yet
	started       time.Time
	retryDelay    backend.Backoff // between statements without an answer
	yieldDelay    backend.Backoff // between grants given back for an older claim

	notified  chan struct{} // receives when the lock may be free; nil if this does not listen
	slotOffer chan struct{} // receives when a slot is given to this
}

type state uint8

const (
	trying state = iota
	queued
	listening
	done
)

// A query is one statement that an attempt has sent, or is about to send.
type query struct {
	session *session
	call    *call
	readers *grant // to be joined, if the call is a probe
	asked   time.Time
	arrived bool // the answer has been received
}

// start runs a in the goroutine of the caller, as far as that goes without a second
// one: a free lock costs one statement and no goroutine. The caller also waits in the
// queue by itself if an idle session is there, because two switches between goroutines
// cost a large part of a hand-over between busy clients.
func (a *attempt) start(ctx context.Context, r *backend.Request) {
	a.started = time.Now()
	q := a.firstQuery(r)
	for q != nil {
		if !a.awaitAnswer(ctx, q) || !q.isPlain(a) {
			break
		}
		a.setNextState(a.receiveResult(q))
		switch q = nil; {
		case a.state == done:
			return
		case a.state == queued && r.Wait:
			r.Queued()
			q = a.queueNow()
		}
	}
	a.runInBackground(q)
}

// firstQuery returns the first query of a. For a lock that was found held a moment ago
// it joins the queue at once.
func (a *attempt) firstQuery(r *backend.Request) *query {
	if r.Wait && !a.shared && a.backend.isContended(a.lock.key) {
		if q := a.queueNow(); q != nil {
			return q
		}
	}
	return a.tryNow()
}

// awaitAnswer sends q and waits for the answer. It reports false if the caller has to
// leave before.
func (a *attempt) awaitAnswer(ctx context.Context, q *query) bool {
	var until time.Time
	switch {
	case !q.call.op.waits():
		until = a.started.Add(backend.FirstAnswer)
	case !a.hasAnswer():
		until = a.firstProbe()
	default:
		until = a.announceAt()
	}
	if q.session.sendAndRead(ctx, q.call, until) {
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

// isPlain reports whether the answer decides the next state without a further question
// to the server.
func (q *query) isPlain(a *attempt) bool {
	c := q.call
	return c.err == nil && c.value >= 0 && q.readers == nil && !q.session.isBehind(c.value) && !(c.op.waits() && isOld(c.sent, a.ttl))
}

// runInBackground continues a in a goroutine of its own, with q first if that is not
// nil.
func (a *attempt) runInBackground(q *query) {
	b := a.backend
	b.mu.Lock()
	a.ctx, a.cancel = context.WithCancel(b.ctx)
	if a.requests == 0 {
		a.cancel()
	}
	b.mu.Unlock()
	loop := func(closing context.Context) { a.loop(closing, q) }
	if !b.janitor.Go(loop) {
		loop(b.ctx) // which has ended: it ends at once
	}
}

// loop takes one step after the other until a is done.
func (a *attempt) loop(closing context.Context, q *query) {
	a.retryDelay = backend.Backoff{Min: 2 * time.Millisecond, Max: 250 * time.Millisecond}
	a.yieldDelay = backend.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	for a.state != done {
		var err error
		if q == nil {
			q, err = a.nextQuery()
		}
		if q != nil {
			a.awaitGrant(closing, q)
			err = a.receiveResult(q)
			q = nil
		}
		a.setNextState(err)
	}
}

// nextQuery sends the next query. Its error says why there is none: errAgain if the
// state has changed.
func (a *attempt) nextQuery() (*query, error) {
	switch a.state {
	case queued:
		return a.joinQueue()
	case listening:
		return a.listen()
	}
	q, err := a.prepareTry(a.ctx)
	if err == nil {
		q.session.start(q.call)
	}
	return q, err
}

// tryOp returns the statement of a try and the session that runs it.
//
// If this client has a shared lock, its session would get that lock again whoever
// waits, and writers of other clients would starve. So another session asks whether
// more readers may join.
func (a *attempt) tryOp() (op, *grant, purpose) {
	if b := a.backend; a.shared {
		b.mu.Lock()
		readers := a.lock.readers(a.lease)
		if readers == nil && b.sharedSessions[sharedKey{a.lease, forHolding}] == nil && !b.mayConnect(forHolding) {
			readers = a.lock.readers(0) // whose session this one would share
		}
		b.mu.Unlock()
		if readers != nil {
			return probe, readers, forListening
		}
	}
	return tryOp(a.shared), nil, forHolding
}

func (a *attempt) prepareTry(ctx context.Context) (*query, error) {
	if err := a.awaitRelease(ctx); err != nil {
		return nil, err
	}
	o, readers, to := a.tryOp()
	s, err := a.backend.useShared(ctx, sharedKey{a.lease, to})
	if err != nil {
		return nil, err
	}
	return &query{session: s, call: newCall(o, a.lock.key), readers: readers}, nil
}

// awaitRelease waits until no release or downgrade of a grant of this client is under way.
// One that fails is sent again, and gives back what the session has of the key: the grant
// of a try that came between would be no more.
func (a *attempt) awaitRelease(ctx context.Context) error {
	b := a.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	for a.lock.isChanging() {
		if err := b.awaitChange(ctx, a.lock); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) mustAwaitRelease() bool {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	return a.lock.isChanging()
}

// tryNow is prepareTry for a session that is connected already. If there is none it
// has one made, and returns nil, as it does if a release is under way.
func (a *attempt) tryNow() *query {
	if a.mustAwaitRelease() {
		return nil
	}
	o, readers, to := a.tryOp()
	s := a.backend.useSharedNow(sharedKey{a.lease, to})
	if s == nil {
		return nil
	}
	return &query{session: s, call: newCall(o, a.lock.key), readers: readers}
}

// receiveResult takes the answer to q. It keeps the session if that got the lock, and
// gives it back otherwise. The error is ErrHeld if the lock is held.
func (a *attempt) receiveResult(q *query) error {
	if !q.arrived {
		<-q.call.done
	}
	defer calls.Put(q.call)
	s, c := q.session, q.call
	err := a.evaluate(q)
	if c.op.waits() {
		a.endSlice(err)
		return err
	}
	if err != nil || q.readers != nil {
		a.backend.stopUsing(s)
	}
	return err
}

func (a *attempt) evaluate(q *query) error {
	s, c := q.session, q.call
	if c.err == nil && c.value == disputed {
		a.resolveDispute(s, c)
	}
	if c.err == nil && q.readers == nil && s.isBehind(c.value) {
		s.drawAnew(c)
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

// failed returns the error of c, and gives back what c may have taken although it
// failed. A wait that was too long or was cancelled means that the lock is held. If
// the server has just ended the session, the locks of that session are free: the attempt
// tries once more on another one, as there may be several that have ended and were there
// when it began.
func (a *attempt) failed(s *session, c *call) error {
	if o := c.op.undo(); o != ops && s.survives(c.err) {
		s.giveBack(o, c.arg)
	}
	if codeOf(c.err) == undefinedTable {
		a.backend.setAside(s)
	}
	if c.op.waits() {
		switch codeOf(c.err) {
		case lockNotAvailable, queryCanceled, deadlockDetected:
			return backend.Fail(backend.ErrHeld, c.err)
		}
	}
	if s.made.Before(a.started) && s.endedByServer(c.err) {
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
		s.notifyListeners(key)
	}
}

// joined ends a by adding its requests to the readers of g. The session of g must have
// answered lately.
func (a *attempt) joined(g *grant) error {
	b := a.backend
	fresh := time.Now()
	b.mu.Lock()
	if !a.fixed { // by any of its requests
		fresh = fresh.Add(-a.ttl / 10)
	}
	b.mu.Unlock()
	proof := g.session.renew(fresh)
	<-proof.done
	a.withdrawClaim()
	a.withdrawAnnouncement()
	a.stopListening()
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.over || g.pending != nil || proof.err != nil {
		return errAgain
	}
	g.sent = proof.sent
	a.complete(g, nil)
	return nil
}

// granted ends a with a lock that s has got.
func (a *attempt) granted(s *session, sent time.Time, number int64, waited bool) error {
	a.withdrawClaim()
	a.withdrawAnnouncement()
	a.stopListening()
	b := a.backend
	b.mu.Lock()
	if _, lives := b.live[s]; !lives {
		b.mu.Unlock()
		return backend.Fail(backend.ErrUnavailable, errSilent)
	}
	g := &grant{lock: a.lock, session: s, shared: a.shared, token: uint64(number), sent: sent}
	g.holds = g.buffer[:0]
	s.isDedicated = waited
	s.grants[g] = struct{}{}
	g.lock.grants = append(g.lock.grants, g)
	unwanted := a.requests == 0
	if unwanted {
		g.pending = newOutcome()
	}
	a.complete(g, nil)
	b.mu.Unlock()
	if unwanted {
		g.session.start(g.unlock())
	}
	return nil
}

// setNextState sets the state that follows from the result of a query: nil is an
// answer, ErrHeld says that the lock is held, and errAgain that nothing is known.
func (a *attempt) setNextState(err error) {
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
		case a.isAbandoned(), a.waiters == 0 && err != errAgain,
			!answered && !passing(err), !answered && !a.answered && time.Since(a.started) > backend.FirstAnswer:
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
		backend.Sleep(a.ctx, a.retryDelay.Next())
	}
}

// giveUp ends a without a lock, after it has removed all of it from the server. It is
// called with b.mu held and returns without.
func (a *attempt) giveUp(err error) {
	b := a.backend
	b.mu.Unlock()
	a.withdrawClaim()
	a.withdrawAnnouncement()
	a.leaveQueue()
	a.stopListening()
	b.mu.Lock()
	a.complete(nil, err)
	b.mu.Unlock()
}

// noteHeld notes that the server said that the lock is held. It is called with b.mu
// held.
func (a *attempt) noteHeld() {
	a.backend.noteContention(a.lock.key)
	if !a.foundHeld {
		a.foundHeld, a.answered = true, true
		a.announce()
	}
}

// announce wakes the requests that wait for the attempt. It is called with b.mu held.
func (a *attempt) announce() {
	if a.progress != nil {
		close(a.progress)
		a.progress = nil
	}
}

// complete ends a with a grant or an error. It is called with b.mu held.
func (a *attempt) complete(g *grant, err error) {
	a.grant, a.err, a.state = g, err, done
	if g != nil {
		g.users += a.requests
	}
	if a.cancel != nil {
		a.cancel()
	}
	a.lock.attempt = nil
	a.announce()
	a.backend.removeUnused(a.lock)
}

func (a *attempt) isDone() bool { return a.grant != nil || a.err != nil }

func isHeld(err error) bool { return errors.Is(err, backend.ErrHeld) }
