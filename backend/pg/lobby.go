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
	for {
		if err := a.tryOnce(); !isHeld(err) || !s.lives() {
			return err
		}
		a.foundHeld()
		switch a.word() {
		case slotFree:
			return a.park(closing, pause)
		case unwanted:
			return backend.WaitEnded(a.ctx, true)
		}
	}
}

// What ends a wait in the lobby.
type word uint8

const (
	mayBeFree word = iota
	slotFree
	unwanted
)

// word waits until there is something to do: at the latest when it is time to
// ask without having been told.
func (a *ask) word() word {
	b := a.backend
	since, wait := time.Now(), b.patrol()
	patrol := time.NewTimer(wait)
	defer patrol.Stop()
	for {
		select {
		case b.slots <- struct{}{}:
			return slotFree
		case <-a.wake:
			return mayBeFree
		case <-a.ctx.Done():
			return unwanted
		case <-patrol.C:
		}
		if wait = b.patrol() - time.Since(since); wait <= 0 {
			return mayBeFree
		}
		patrol.Reset(wait) // others have come, who ask too
	}
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
	s.start(&call{op: delist, arg: a.place.key, then: sequelFunc(func(*call) { b.leave(s) })})
}

// patrol is how long a request waits for word before it asks by itself: the
// more do so, the longer.
func (b *Backend) patrol() time.Duration {
	const least, most = 5 * time.Second, 25 * time.Second
	b.mu.Lock()
	defer b.mu.Unlock()
	return backend.Jitter(min(max(time.Duration(b.loiterers)*time.Second, least), most))
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
