package pg

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// start has a take its steps in a goroutine of its own.
func (a *attempt) start(r *backend.Request) {
	a.queueAtOnce(r)
	if b := a.backend; !b.janitor.Go(a.loop) {
		a.loop(b.ctx) // which has ended: it ends at once
	}
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

// sendTry tries, as soon as there is a session and no release or downgrade of a grant of
// this client is under way. One that fails is sent again, and gives back what the session has
// of the key: the grant of a try that came between would be no more.
func (a *attempt) sendTry() (*query, error) {
	b := a.backend
	b.mu.Lock()
	for a.lock.isChanging() {
		if err := b.awaitChange(a.ctx, a.lock, true, time.Time{}); err != nil {
			b.mu.Unlock()
			return nil, err
		}
	}
	b.mu.Unlock()
	o, readers, key := a.tryOp()
	s, err := b.useShared(a.ctx, key)
	if err != nil {
		return nil, err
	}
	q := &query{session: s, call: newCall(o, a.lock.key), readers: readers}
	q.call.single = a.single
	s.start(q.call)
	return q, nil
}
