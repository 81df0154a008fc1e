package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// moment is how long a distant node has callers wait who have asked it themselves.
const moment = 10 * time.Millisecond

// A distant is a node to which every request takes a while.
type distant struct {
	*memory.Backend
	trip    time.Duration
	started int
}

func (d *distant) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	sent := time.Now()
	time.Sleep(d.trip)
	h, err := d.Backend.Vote(ctx, r, b)
	if h != nil {
		h.Sent = sent
	}
	return h, err
}

func (d *distant) Release(ctx context.Context, h *backend.Hold) error {
	time.Sleep(d.trip)
	return d.Backend.Release(ctx, h)
}

func (d *distant) StartVote(r backend.Request, b backend.Ballot) (backend.Started[*backend.Hold], bool) {
	d.started++
	return begin(func() (*backend.Hold, error) { return d.Vote(context.Background(), r, b) }), true
}

func (d *distant) StartRelease(h *backend.Hold) (backend.Started[struct{}], bool) {
	d.started++
	return begin(func() (struct{}, error) { return struct{}{}, d.Release(context.Background(), h) }), true
}

// An underway is a call on a goroutine of its own.
type underway[T any] struct {
	done   chan struct{}
	answer T
	err    error
}

func begin[T any](f func() (T, error)) *underway[T] {
	u := &underway[T]{done: make(chan struct{})}
	go func() {
		defer close(u.done)
		u.answer, u.err = f()
	}()
	return u
}

func (u *underway[T]) Soon() (T, bool) {
	select {
	case <-u.done:
		return u.answer, u.err == nil
	case <-time.After(moment):
		var none T
		return none, false
	}
}

func (u *underway[T]) Finish(context.Context) (T, error) {
	<-u.done
	return u.answer, u.err
}

// far opens a client to nodes at some distance.
func (s nodes) far(t *testing.T, trips ...time.Duration) (*dlock.Client, []*distant) {
	t.Helper()
	var far []*distant
	var all []backend.Backend
	for i, trip := range trips {
		d := &distant{Backend: memory.New(s[i]), trip: trip}
		far, all = append(far, d), append(all, d)
	}
	return over(t, all, nil), far
}

// A caller asks the nodes that are near by itself. It waits for one that is not
// as if others had asked it: not at all.
func TestDistantNode(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		const near, distance = 100 * time.Microsecond, 5 * time.Millisecond
		c, far := s.far(t, distance, near, near)
		m := c.Mutex("x")
		for range 3 { // they get to know each other
			ok(t, dlock.Do(t.Context(), m, nothing))
			time.Sleep(time.Second)
		}
		far[0].started, far[1].started = 0, 0
		before := time.Now()
		ok(t, dlock.Do(t.Context(), m, nothing))
		if took := time.Since(before); took >= distance {
			t.Errorf("a cycle takes %v", took)
		}
		if far[0].started != 0 || far[1].started != 2 {
			t.Errorf("%d requests to the distant node by the caller, and %d to one that is near", far[0].started, far[1].started)
		}
		s.empty(t)
	})
}

// A node that was near does not answer for a while. It holds up one caller for a
// moment, and the next not at all.
func TestNodeStopsBeingNear(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, far := s.far(t, 0, 0, 0)
		m := c.Mutex("x")
		ok(t, dlock.Do(t.Context(), m, nothing))
		far[0].trip = 100 * time.Millisecond
		cycle := func() time.Duration {
			before := time.Now()
			ok(t, dlock.Do(t.Context(), m, nothing))
			return time.Since(before)
		}
		if took := cycle(); took > 3*moment {
			t.Errorf("a cycle takes %v", took)
		}
		time.Sleep(time.Second)
		if took := cycle(); took >= moment {
			t.Errorf("the next cycle takes %v", took)
		}
		s.empty(t)
	})
}
