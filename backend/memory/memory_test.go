package memory

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

func request(name string, seq uint64) backend.Request {
	return backend.Request{Name: name, ID: backend.ID{Client: "c", Seq: seq}, Mode: backend.Exclusive, TTL: time.Minute, Wait: true}
}

// Nobody needs to observe a request.
func TestNoObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		a, b := New(s), New(s)
		if _, err := a.Acquire(t.Context(), request("x", 1)); err != nil {
			t.Fatal(err)
		}
		granted := make(chan error, 1)
		go func() {
			_, err := b.Acquire(t.Context(), request("x", 2))
			granted <- err
		}()
		synctest.Wait()
		s.Evict("x")
		if err := <-granted; err != nil {
			t.Error(err)
		}
	})
}

// Who is granted the lock from the queue hears of those who waited behind it before.
func TestGrantTellsOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		a, b, c := New(s), New(s), New(s)
		held, err := a.Acquire(t.Context(), request("x", 1))
		if err != nil {
			t.Fatal(err)
		}
		wanted := new(ear)
		second := request("x", 2)
		second.Observer = wanted
		go func() { _, _ = b.Acquire(t.Context(), second) }()
		synctest.Wait()
		go func() { _, _ = c.Acquire(t.Context(), request("x", 3)) }()
		synctest.Wait()
		if wanted.heard.Load() {
			t.Error("who waits was told that somebody waits for its hold")
		}
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !wanted.heard.Load() {
			t.Error("the holder was not told that another client waits")
		}
	})
}

// A request waits in the queue, and its time ends while the grant is on its way: what it knows is that
// the lock was held.
func TestTimeEndsBeforeTheGrantArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		a, b := New(s), New(s)
		held, err := a.Acquire(t.Context(), request("x", 1))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		failed := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, request("x", 2))
			failed <- err
		}()
		synctest.Wait()
		b.Delay(time.Minute)
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, backend.ErrHeld) {
			t.Errorf("got %v, want %v", err, backend.ErrHeld)
		}
	})
}

// An ear notes that it was told that somebody waits.
type ear struct{ heard atomic.Bool }

func (e *ear) Queued()    {}
func (e *ear) Lost(error) {}
func (e *ear) Wanted()    { e.heard.Store(true) }

// The server is cut off between a request and its answer.
func TestReleaseIsBounded(t *testing.T) {
	s := NewServer()
	b := New(s)
	r := request("x", 1)
	r.TTL = 100 * time.Millisecond
	h, err := b.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock() // the request gets this far
	before, released := s.Ops(), make(chan error, 1)
	go func() { released <- b.Release(context.Background(), h) }()
	for s.Ops() == before {
		time.Sleep(time.Millisecond)
	}
	s.Freeze()
	s.mu.Unlock()
	select {
	case err := <-released:
		if err != nil && !errors.Is(err, backend.ErrUnavailable) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("still waiting for the answer")
	}
}

// TestExpireBesideAWaiter has a holder leave its lock to its server while another client
// comes to wait for it, and is told of.
func TestExpireBesideAWaiter(t *testing.T) {
	s := NewServer()
	a, b := New(s), New(s)
	for i := range 100 {
		r := request("x", uint64(i))
		h, err := a.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			h, err := b.Acquire(t.Context(), r)
			if err == nil {
				err = b.Release(t.Context(), h)
			}
			got <- err
		}()
		if err := a.Expire(t.Context(), h, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
}
