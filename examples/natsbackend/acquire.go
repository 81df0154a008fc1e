package natsbackend

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dlock-go/dlock/backend"
)

// An ask is an Acquire under way.
type ask struct {
	b        *Backend
	r        *backend.Request
	key, id  string
	begun    time.Time
	answered bool // the server has said that the lock is held
	next     time.Time
	watch    jetstream.KeyWatcher
	leave    context.CancelFunc // ends what the watch lives in
}

// errHeld ends a try.
var errHeld = errors.New("held")

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	defer b.asks.Done()
	a := &ask{b: b, r: &r, key: key(r.Name), id: text(r.ID), begun: time.Now()}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	h, err := a.run(wait)
	a.unwatch()
	if err == nil {
		return h, nil
	}
	switch {
	case b.ctx.Err() != nil:
		err = backend.ErrClosed
	case ctx.Err() != nil:
		err = backend.WaitEnded(ctx, a.answered)
	case errors.Is(err, errHeld):
		return nil, backend.ErrHeld // it has written nothing
	}
	a.undo(ctx)
	return nil, err
}

// run asks, and waits for something to change, until the lock is there.
func (a *ask) run(ctx context.Context) (*backend.Hold, error) {
	pause := backend.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		bounded, cancel := ctx, context.CancelFunc(func() {})
		if !a.answered {
			bounded, cancel = context.WithDeadline(ctx, a.begun.Add(backend.FirstAnswer))
		}
		h, err := a.enter(bounded)
		cancel()
		switch {
		case h != nil, errors.Is(err, errHeld), errors.Is(err, backend.ErrConflict), errors.Is(err, backend.ErrAuth):
			return h, err
		case err == nil:
			pause.Reset()
			a.await(ctx)
		case !a.answered && time.Since(a.begun) >= backend.FirstAnswer:
			return nil, err
		default:
			backend.Sleep(ctx, pause.Next())
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// enter takes the lock if it can be had or has been granted, and else a place in
// the queue. The holders that have shown no sign of life for their TTL are removed
// on the way. A nil hold without an error means that the request waits.
func (a *ask) enter(ctx context.Context) (*backend.Hold, error) {
	var in, held bool
	c, err := a.b.change(ctx, a.key, func(s *state, _ *change) bool {
		var dead map[string]bool
		dead, a.next = a.b.sights.look(a.key, s)
		if len(dead) > 0 {
			s.remove(func(e entry) bool { return dead[e.ID] && e.ID != a.id })
		}
		in, held = a.place(s)
		return in || len(dead) > 0 || !held
	})
	switch {
	case err != nil:
		return nil, err
	case in:
		h := &backend.Hold{
			Request: *a.r, Token: c.revision * block, Sent: c.sent, Granted: a.r.TTL,
			TellsWanted: !a.r.Fixed, // a renewal tells
		}
		a.b.remember(h)
		return h, nil
	case !a.r.Wait:
		return nil, errHeld
	case !a.answered:
		a.answered = true
		a.r.Queued()
	}
	return nil, nil
}

// place puts the request where it belongs. It reports whether that is among the
// holders, and whether it was in the queue or has to stay away, so that there is
// nothing to write.
func (a *ask) place(s *state) (in, same bool) {
	e := entry{ID: a.id, Shared: a.r.Mode == backend.Shared, TTL: a.r.TTL, Label: a.r.Label, Beat: a.b.beat.Add(1)}
	if mine := s.holder(a.id); mine != nil {
		mine.Beat = e.Beat // the write proves that it stands
		return true, false
	}
	if s.waiter(a.id) != nil {
		return false, true
	}
	if s.enter(e) {
		return true, false
	}
	if !a.r.Wait {
		return false, true
	}
	s.Queue = append(s.Queue, e)
	return false, false
}

// await returns when it is worth asking again: the request was granted or thrown
// out, a holder may be dead, or the connection was away.
func (a *ask) await(ctx context.Context) {
	back := a.b.back()
	if a.watch == nil {
		// The watch lives in its context; what bounds the request is a timer.
		watching, cancel := context.WithCancel(ctx)
		limit := time.AfterFunc(exchangeLimit, cancel)
		w, err := a.b.kv.Watch(watching, a.key)
		if !limit.Stop() || err != nil {
			cancel()
			if err == nil {
				a.b.janitor.Go(func(context.Context) { _ = w.Stop() })
			}
			backend.Sleep(ctx, 100*time.Millisecond)
			return
		}
		a.watch, a.leave = w, cancel
	}
	for {
		var due <-chan time.Time
		if !a.next.IsZero() {
			due = time.After(time.Until(a.next))
		}
		select {
		case e, ok := <-a.watch.Updates():
			if !ok {
				a.unwatch()
				return
			}
			if e != nil && a.turn(e.Value()) {
				return
			}
		case <-due:
			return
		case <-back:
			a.unwatch()
			return
		case <-ctx.Done():
			return
		}
	}
}

// turn reports whether the value says something else than that the request waits.
func (a *ask) turn(value []byte) bool {
	s, err := decode(value)
	if err != nil || s.waiter(a.id) == nil {
		return true
	}
	var dead map[string]bool
	dead, a.next = a.b.sights.look(a.key, s)
	return len(dead) > 0
}

func (a *ask) unwatch() {
	if w := a.watch; w != nil {
		leave := a.leave
		a.watch = nil
		a.b.janitor.Go(func(context.Context) { // it asks the server
			_ = w.Stop()
			leave()
		})
	}
}

// undo takes out what the request may have left. It writes in any case: a write
// that is still on its way then comes too late.
func (a *ask) undo(ctx context.Context) {
	parent := context.WithValue(context.WithoutCancel(ctx), closing{}, true)
	a.b.janitor.Go(func(stop context.Context) {
		ctx, cancel := backend.Bound(parent, a.r.TTL)
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		_ = a.b.insist(ctx, a.key, func(s *state, _ *change) bool {
			s.remove(func(e entry) bool { return e.ID == a.id })
			return true
		})
	})
}
