package conformance

import (
	"errors"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A direct caller asks a backend as package dlock does, with requests of its own.
type direct struct {
	s      *scenario
	peer   *Peer
	client string
	asked  uint64
}

// direct returns a caller of p's backend.
func (s *scenario) direct(p *Peer) *direct {
	return &direct{s: s, peer: p, client: identity()}
}

// ask takes name, and waits for it.
func (d *direct) ask(name string) (*backend.Hold, error) {
	d.asked++
	return d.peer.Backend.Acquire(d.s.ctx, backend.Request{
		Name: name, ID: backend.ID{Client: d.client, Seq: d.asked}, Mode: backend.Exclusive,
		TTL: d.s.TTL, Wait: true, Observer: deaf{},
	})
}

// take is ask, and fails the test if it cannot.
func (d *direct) take(name string) *backend.Hold {
	d.s.Helper()
	h, err := d.ask(name)
	d.s.ok(err)
	return h
}

func (d *direct) release(h *backend.Hold) {
	d.s.Helper()
	d.s.ok(d.peer.Backend.Release(d.s.ctx, h))
}

// late prepares a caller whose answers are held back, and for how long. It
// reports false if that is not applicable.
func (s *scenario) late() (d *direct, by time.Duration, ok bool) {
	p := s.open()
	if s.na(!s.Leased, "holds have no lease") || s.unable(p.Delay == nil, "Delay") {
		return nil, 0, false
	}
	d = s.direct(p)
	d.release(d.take(s.sub("first"))) // connected, and whatever a first lock needs
	return d, max(s.TTL/20, 20*time.Millisecond), true
}

// counted checks that h counts from before its request left. What came in now has
// been held back for so long, unless it came before that began: a session may have
// been proved already.
func (s *scenario) counted(h *backend.Hold, began time.Time, heldBack time.Duration) {
	s.Helper()
	if left := time.Now().Add(-heldBack); h.Sent.After(left) && h.Sent.After(began) {
		s.Errorf("Sent is %v after the server had answered", h.Sent.Sub(left))
	}
}

// sentAcquire holds back the answer to a request for a free lock.
func sentAcquire(s *scenario) {
	d, by, ok := s.late()
	if !ok {
		return
	}
	d.peer.Delay(by)
	began := time.Now()
	h := d.take(s.name)
	s.counted(h, began, by)
	d.peer.Delay(0)
	d.release(h)
}

// sentRenewal holds back the answer to a renewal.
func sentRenewal(s *scenario) {
	d, by, ok := s.late()
	if !ok {
		return
	}
	renewer, ok := d.peer.Backend.(backend.Renewer)
	if s.na(!ok, "the backend is no Renewer") {
		return
	}
	h := d.take(s.name)
	d.peer.Delay(by)
	began := time.Now()
	for proofs := 0; proofs < 2; { // the first may fail, of a server that was near a moment ago
		s.pass(2 * by) // so that what is known is old
		renewer.Renew(s.ctx, []*backend.Hold{h}, func(h *backend.Hold, err error) {
			switch {
			case err == nil:
				s.counted(h, began, by)
				proofs++
			case !errors.Is(err, backend.ErrUnavailable) || s.ctx.Err() != nil:
				s.Errorf("renew: %v", err)
				proofs = 2
			}
		})
	}
	d.peer.Delay(0)
	d.release(h)
}

// sentGrant holds back what tells a waiter that the lock is its own: its hold counts
// from before the server's grant, or from a proof that was asked for since.
func sentGrant(s *scenario) {
	d, by, ok := s.late()
	if !ok {
		return
	}
	holder := s.locked(s.open().Mutex(s.name))
	var h *backend.Hold
	var err error
	granted := make(chan struct{})
	go func() {
		defer close(granted)
		h, err = d.ask(s.name)
	}()
	s.queued(s.name, 1)
	d.peer.Delay(by)
	began := time.Now()
	s.unlock(holder)
	s.done("granted", granted)
	s.ok(err)
	s.counted(h, began, by)
	d.peer.Delay(0)
	d.release(h)
}

// waitLateGrant lets a waiter learn of its grant only when that has run out and
// another has the lock. Then it has to wait again, also where its hold was to end
// by itself. Its lease is short: a session may last for several, and longer while
// its client tries to come back.
func waitLateGrant(s *scenario) {
	short := dlock.Options{TTL: s.TTL / 3}
	p := s.openWith(short)
	if s.na(!s.Leased, "holds have no lease") || s.unable(p.Delay == nil, "Delay") {
		return
	}
	a, b := s.open(), s.open()
	s.unlock(s.locked(p.Mutex(s.sub("first"))))
	late, next := make(map[string]*attempt), make(map[string]*attempt)
	holders := make(map[string]*dlock.Lease)
	for kind, o := range map[string][]dlock.Option{"renewed": nil, "fixed": {dlock.WithMaxHold(short.TTL)}} {
		holders[kind] = s.locked(a.Mutex(s.sub(kind)))
		late[kind] = s.queue(p.Mutex(s.sub(kind), o...), s.sub(kind), 1)
		next[kind] = s.queue(b.Mutex(s.sub(kind)), s.sub(kind), 2)
	}
	p.Delay(3 * s.TTL / 2) // when both are queued: who is not heard of leaves the queue
	for _, holder := range holders {
		s.unlock(holder)
	}
	for _, next := range next {
		next.granted() // since the late waiter has not been heard of for so long
	}
	for end := time.Now().Add(2 * s.TTL); time.Now().Before(end); s.pass(stallTick) {
		for kind, late := range late {
			if !late.waiting() && late.err == nil && late.lease.Err() == nil && next[kind].lease.Err() == nil {
				s.Fatalf("%s: a grant that had run out is believed beside token %d", kind, next[kind].lease.Token())
			}
		}
	}
	p.Delay(0)
	for kind, late := range late {
		_ = next[kind].lease.Unlock(s.ctx) // on a slow machine it may be lost
		if s.done("returned", late.ready); late.err == nil {
			_ = late.lease.Unlock(s.ctx)
		}
	}
}
