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
//	no connection   trying, later    listening, or    trying, later
//	                                 trying, later
//	no answer       trying, later    trying, later    trying, later
//	nobody wants it done             done             done
//
// If no request of the attempt waits, held is done. So is an error after which another
// try makes no sense. A slot is the right to have a session that waits: see wait.go.
//
// All of it is the work of a goroutine of the attempt, which goes on when the request has left.
//
// The mutex of the backend guards what several goroutines use.
type attempt struct {
	backend *Backend
	lock    *localLock
	shared  bool
	ttl     time.Duration
	lease   time.Duration // of the sessions that it uses
	since   time.Time     // when the request came that began it
	started time.Time     // when that asked here

	requests  int  // requests that want the answer
	waiters   int  // those of them that wait for the lock
	fixed     bool // one of them asks for a hold that is not renewed
	foundHeld bool // the server has said that somebody else holds the lock
	hasSlot   bool // a session of this attempt may wait
	ctx       context.Context
	cancel    context.CancelFunc
	grant     *grant // the result is this or err
	err       error

	// Only the goroutine of the attempt uses these.
	state         state
	single        bool     // a statement of several tries has failed: this one's is to be alone
	queueSession  *session // that waits, or did so in the last slice
	listenSession *session // that gets the notifications
	claim         mark
	announcement  mark
	retryDelay    backend.Backoff // between statements without an answer
	connectDelay  backend.Backoff // between connections that could not be had
	connectAfter  time.Time       // when there may be one to wait on
	yieldDelay    backend.Backoff // between grants given back for an older claim

	wake chan struct{} // receives when the lock may be free, or there is a slot
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
}

// loop takes one step after the other until a is done.
func (a *attempt) loop(closing context.Context) {
	for a.state != done {
		q, err := a.nextQuery()
		if err == nil {
			a.awaitGrant(closing, q)
			err = a.receiveResult(q)
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
	return a.sendTry()
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
			!answered && !passing(err), !answered && !a.foundHeld && time.Since(a.started) > backend.FirstAnswer:
			a.giveUp(err)
			return
		}
		b.mu.Unlock()
		switch {
		case err == errAgain:
		case !held:
			if a.state != trying {
				a.connectAfter = time.Now().Add(a.connectDelay.Next())
			}
			a.state = trying
		case a.state == trying:
			a.state = a.afterHeld()
		}
		if !answered || held && a.state == trying {
			a.pauseTries()
		}
	}
}

// pauseTries waits until the next try. A request that has found the lock held has a claim
// meanwhile, once it has waited for long: where no connection is to be had to wait on, such as
// on a server that is full, those who wait on one would go first for ever.
func (a *attempt) pauseTries() {
	if a.hasAnswer() {
		if due := a.since.Add(a.claim.pause); a.claim.due.Before(due) {
			a.claim.due = due
		}
		a.setDueMarks()
	}
	backend.Sleep(a.ctx, a.retryDelay.Next())
}

// giveUp ends a without a lock, after it has removed all of it from the server. It is
// called with b.mu held and returns without.
func (a *attempt) giveUp(err error) {
	b := a.backend
	b.mu.Unlock()
	a.withdraw()
	b.mu.Lock()
	a.complete(nil, err)
	b.mu.Unlock()
}

// noteHeld notes that the server said that the lock is held. It is called with b.mu
// held.
func (a *attempt) noteHeld() {
	a.backend.noteContention(a.lock.key)
	if !a.foundHeld {
		a.foundHeld = true
		a.lock.change()
	}
}

// complete ends a with a grant or an error. It is called with b.mu held.
func (a *attempt) complete(g *grant, err error) {
	a.grant, a.err, a.state = g, err, done
	if g != nil {
		g.users += a.requests
	}
	a.cancel()
	a.lock.attempt = nil
	a.backend.removeUnused(a.lock)
}

func (a *attempt) isDone() bool { return a.grant != nil || a.err != nil }

func isHeld(err error) bool { return errors.Is(err, backend.ErrHeld) }
