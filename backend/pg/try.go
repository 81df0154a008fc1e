package pg

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// start tries once in the goroutine of the caller: a free lock costs one statement and no
// goroutine.
func (a *attempt) start(ctx context.Context, r *backend.Request) {
	var q *query
	if !a.queueAtOnce(r) {
		if q, _ = a.newTry(ended); q != nil && a.awaitTry(ctx, q) && q.isPlain() {
			a.setNextState(a.receiveResult(q))
			q = nil
		}
	}
	if a.state == done {
		return
	}
	loop := func(closing context.Context) { a.loop(closing, q) }
	if b := a.backend; !b.janitor.Go(loop) {
		loop(b.ctx) // which has ended: it ends at once
	}
}

// awaitTry sends q and waits for the answer. It reports false if the caller has to leave
// before.
func (a *attempt) awaitTry(ctx context.Context, q *query) bool {
	until := a.started.Add(backend.FirstAnswer)
	if q.session.sendAndRead(ctx, q.call, until) {
		return true
	}
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-q.call.done:
		return true
	case <-ctx.Done():
	case <-a.backend.ctx.Done():
	case <-late.C:
	}
	return false
}

// isPlain reports whether the answer to a try decides the next state without a further
// question to the server.
func (q *query) isPlain() bool {
	c := q.call
	return c.err == nil && c.value >= 0 && q.readers == nil && !q.session.isBehind(c.value)
}

// tryOp returns the statement of a try and the session that runs it.
//
// If this client has a shared lock, its session would get that lock again whoever
// waits, and writers of other clients would starve. So another session asks whether
// more readers may join.
func (a *attempt) tryOp() (op, *grant, time.Duration) {
	if b := a.backend; a.shared {
		b.mu.Lock()
		readers := a.lock.readers(a.lease)
		if readers == nil && b.shared[a.lease] == nil && b.room() < 1 {
			readers = a.lock.readers(0) // whose session this one would share
		}
		b.mu.Unlock()
		if readers != nil {
			return probe, readers, forListening
		}
	}
	return tryExclusive.of(a.shared), nil, a.lease
}

// newTry returns a try that is yet to be sent, as soon as there is a session and no release
// or downgrade of a grant of this client is under way. One that fails is sent again, and gives
// back what the session has of the key: the grant of a try that came between would be no more.
func (a *attempt) newTry(ctx context.Context) (*query, error) {
	b := a.backend
	b.mu.Lock()
	for a.lock.isChanging() {
		if err := b.awaitChange(ctx, a.lock, true, time.Time{}); err != nil {
			b.mu.Unlock()
			return nil, err
		}
	}
	b.mu.Unlock()
	o, readers, key := a.tryOp()
	s, err := b.useShared(ctx, key)
	if err != nil {
		return nil, err
	}
	q := &query{session: s, call: newCall(o, a.lock.key), readers: readers}
	q.call.single = a.single
	return q, nil
}

// sendTry tries.
func (a *attempt) sendTry() (*query, error) {
	q, err := a.newTry(a.ctx)
	if err == nil {
		q.session.start(q.call)
	}
	return q, err
}

// ended is for what is to be had at once, or not at all.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
