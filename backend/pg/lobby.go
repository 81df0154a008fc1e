package pg

import (
	"context"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5/pgproto3"
)

// The lobby is where requests wait for which there is no connection to wait
// on. Each says so with a lock on the second key; who gives back the lock sends
// word then. Nobody sends word for a client that has died: each request asks
// again by itself now and then.

// loiter waits for word that the lock may be free, or for a slot.
func (a *ask) loiter(closing context.Context, pause *backend.Backoff) error {
	s, err := a.enlist()
	if err != nil {
		return a.retry(pause, err)
	}
	defer a.delist(s)
	if err := a.tryOnce(); !isHeld(err) {
		return err
	}
	a.foundHeld()
	patrol := time.NewTimer(a.backend.patrol())
	defer patrol.Stop()
	select {
	case a.backend.slots <- struct{}{}:
		return a.park(closing, pause)
	case <-a.wake:
	case <-patrol.C:
	case <-a.ctx.Done():
		return backend.WaitEnded(a.ctx, true)
	}
	return a.tryOnce()
}

// retry tries after a pause, when it is not possible to wait because of err.
func (a *ask) retry(pause *backend.Backoff, err error) error {
	if !backend.Sleep(a.ctx, pause.Next()) {
		return err
	}
	return a.tryOnce()
}

// enlist says on the server that somebody waits for the lock.
func (a *ask) enlist() (*session, error) {
	b := a.backend
	s, err := b.shared(a.ctx, line{a.ttl, listening})
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	a.wake = make(chan struct{}, 1)
	b.loiterers++
	b.mu.Unlock()
	if _, err := s.do(a.ctx, enlist, a.place.key); err != nil {
		a.delist(s)
		return nil, classify(err)
	}
	return s, nil
}

// delist takes that back.
func (a *ask) delist(s *session) {
	b := a.backend
	b.mu.Lock()
	a.wake = nil
	b.loiterers--
	b.mu.Unlock()
	s.start(&call{op: delist, arg: a.place.key, then: func(*call) { b.leave(s) }})
}

// patrol is how long a request waits for word before it asks by itself: the
// more do so, the longer.
func (b *Backend) patrol() time.Duration {
	const least, most = time.Second, 30 * time.Second
	b.mu.Lock()
	defer b.mu.Unlock()
	return backend.Jitter(min(max(time.Duration(b.loiterers)*least, least), most))
}

// wake passes on the word that a lock is free.
func (b *Backend) wake(m *pgproto3.NotificationResponse) {
	key, err := strconv.ParseInt(m.Payload, 10, 64)
	if m.Channel != wakeChannel || err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.places[key]; p != nil {
		p.wake()
	}
}

// wakeAll has everybody ask who may have missed a word. It is called with b.mu
// held.
func (b *Backend) wakeAll() {
	for _, p := range b.places {
		p.wake()
	}
}

func (p *place) wake() {
	if p.ask == nil {
		return
	}
	select {
	case p.ask.wake <- struct{}{}:
	default:
	}
}
