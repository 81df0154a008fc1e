package pg

import (
	"context"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Requests for which there is no room in the server's queue listen. Each says so
// with a lock on a second key; who gives back the lock sends a notification then.
// Nobody does so for a client that has died: each request asks again by itself now
// and then.

// heardOf is the answer of an op that gives a lock back of whose end somebody may
// want to hear.
const heardOf = 2

// listen has a ask again whenever it is told to, or changes its state if there is
// room in the queue.
func (a *ask) listen() (*question, error) {
	if a.listener == nil || !a.listener.lives() {
		a.stopListening()
		if err := a.enlist(); err != nil {
			return nil, err
		}
	} else {
		switch a.word() {
		case haveRoom:
			a.stopListening()
			a.hasRoom, a.state = true, queued
			return nil, errAgain
		case unwanted:
			return nil, backend.WaitEnded(a.ctx, true)
		}
	}
	q, err := a.prepareTry(a.ctx)
	if err == nil {
		q.session.start(q.call)
	}
	return q, err
}

// What ends a wait for word.
type word uint8

const (
	mayBeFree word = iota
	haveRoom
	unwanted
)

// word waits until there is something to do: at the latest when it is time to
// ask without having been told.
func (a *ask) word() word {
	b := a.backend
	since, slice := time.Now(), b.opts.Slice
	for {
		if age := time.Since(a.since); age >= slice {
			a.makeClaim()
		}
		wait := b.patrol(a.claimant != nil) - time.Since(since)
		if wait <= 0 {
			return mayBeFree
		}
		if age := time.Since(a.since); age < slice {
			wait = min(wait, slice-age)
		}
		timer := time.NewTimer(wait)
		select {
		case <-a.room:
			timer.Stop()
			return haveRoom
		case <-a.wake:
			timer.Stop()
			return mayBeFree
		case <-a.ctx.Done():
			timer.Stop()
			return unwanted
		case <-timer.C:
		}
	}
}

// enlist says on the server that somebody listens.
func (a *ask) enlist() error {
	b := a.backend
	s, err := b.shared(a.ctx, line{purpose: aside})
	if err != nil {
		return err
	}
	a.listener = s
	b.mu.Lock()
	a.wake, a.room = make(chan struct{}, 1), make(chan struct{}, 1)
	b.listeners = append(b.listeners, a)
	b.mu.Unlock()
	if _, err := s.run(enlist, a.place.key, 0); err != nil {
		a.stopListening()
		return classify(err)
	}
	return nil
}

// stopListening takes that back, and the room that was offered meanwhile.
func (a *ask) stopListening() {
	s := a.listener
	if s == nil {
		return
	}
	a.listener = nil
	b := a.backend
	b.mu.Lock()
	a.wake = nil
	b.listeners = without(b.listeners, a)
	b.mu.Unlock()
	select {
	case <-a.room:
		b.freeRoom()
	default:
	}
	s.start(&call{op: delist, arg: a.place.key, then: sequelFunc(func(*call) { b.leave(s) })})
}

// patrol is how long a request waits for word before it asks by itself: the more do
// so, the longer. Others give way to one who has a claim.
func (b *Backend) patrol(claimed bool) time.Duration {
	const least, most = 5 * time.Second, 25 * time.Second
	if claimed {
		return backend.Jitter(time.Second)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return backend.Jitter(min(max(time.Duration(len(b.listeners))*time.Second, least), most))
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

// tellListeners tells those who listen for the end of a lock. The word goes by
// itself, so that it fails with nothing else; if it does, it is sent again.
func (s *session) tellListeners(key int64) { s.tellAgain(key, backend.Backoff{}) }

func (s *session) tellAgain(key int64, pause backend.Backoff) {
	s.start(&call{op: notify, arg: key, then: sequelFunc(func(c *call) {
		if c.err == nil || !s.survived(c.err) {
			return
		}
		s.backend.janitor.Go(func(ctx context.Context) {
			if backend.Sleep(ctx, pause.Next()) {
				s.tellAgain(key, pause)
			}
		})
	})})
}
