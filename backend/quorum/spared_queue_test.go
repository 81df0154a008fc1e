package quorum_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// nameWithFront returns a name whose front is that node.
func (s nodes) nameWithFront(node int) string {
	for k := 0; ; k++ {
		if name := fmt.Sprint("warm", k); s.front(name) == node {
			return name
		}
	}
}

// Who waits in a queue loses the front, while another node is spared that was silent and is back.
// It goes on waiting at the third. The one that was spared is for whoever is let in there: the
// waiter has no part of it, and keeps nobody out.
func TestWhoWaitsTakesNoSparedNode(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		front := s.front("x")
		spared := (front + 2) % 3
		a, z := s.open(t, nil), s.open(t, nil)
		a.links[spared].Cut()
		z.links[spared].Cut()
		for range 3 {
			z.unlock(z.lock(s.nameWithFront(spared)))
			time.Sleep(time.Minute)
		}
		l := a.lock("x")
		z.heal()
		got := make(chan *dlock.Lease)
		go func() { got <- z.lock("x") }()
		time.Sleep(time.Second)
		z.links[front].Cut()
		time.Sleep(3 * time.Second)
		on, err := memory.New(s[spared]).Inspect(t.Context(), "x")
		ok(t, err)
		if len(on.Holders) != 0 {
			t.Errorf("who waits has a part of the lock at a node where nobody lets it in: %+v", on.Holders)
		}
		a.heal() // it renews the lock, and takes the node that was away
		time.Sleep(ttl/3 + time.Second)
		on, err = memory.New(s[spared]).Inspect(t.Context(), "x")
		ok(t, err)
		if len(on.Holders) != 1 || on.Holders[0].Token != l.Token() {
			t.Errorf("the holder has no part there: %+v", on.Holders)
		}
		z.heal()
		a.unlock(l)
		z.unlock(<-got)
	})
}

// failsToRaise is a distant node that fails to take a token, when it is let.
type failsToRaise struct {
	*distant
	fails atomic.Bool
}

func (d *failsToRaise) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	if !d.fails.Load() {
		return d.distant.RaiseToken(ctx, h, token)
	}
	time.Sleep(time.Duration(d.trip.Load()))
	return backend.ErrUnavailable
}

// Who waits is turned away by the front, and asks the node that was spared and the next front, which
// are free by then, and which agree on a token. The hold has that. The front counts: that it fails
// to take another one, which nobody needs, loses nothing.
func TestFrontThatCountsIsToldNothing(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		const trip = 40 * time.Millisecond
		front := s.front("x")
		next, spared := (front+1)%3, (front+2)%3
		a := s.open(t, nil)
		var all []backend.Backend
		var far []*failsToRaise
		for i := range s {
			d := &failsToRaise{distant: &distant{Backend: memory.New(s[i])}}
			d.trip.Store(int64(trip))
			far, all = append(far, d), append(all, d)
		}
		far[spared].trip.Store(int64(trip - 4*time.Millisecond))
		z := over(t, all, nil)
		for range 10 {
			ok(t, dlock.Do(t.Context(), z.Mutex("warm"), nothing))
			time.Sleep(time.Second)
		}
		a.links[spared].Cut()
		far[spared].Cut()
		for range 3 {
			ok(t, dlock.Do(t.Context(), z.Mutex(s.nameWithFront(spared)), nothing))
			time.Sleep(time.Minute)
		}
		l := a.lock("x")
		far[spared].Heal()
		got := make(chan *dlock.Lease)
		go func() {
			l, err := z.Mutex("x").Lock(t.Context())
			ok(t, err)
			got <- l
		}()
		time.Sleep(2 * time.Second)
		far[next].fails.Store(true)
		s[front].Wipe()
		is(t, l.Unlock(t.Context()), dlock.ErrLost) // but the next front is free
		l = <-got
		far[next].fails.Store(false)
		time.Sleep(time.Second)
		ok(t, l.Err())
		ok(t, l.Unlock(t.Context()))
	})
}
