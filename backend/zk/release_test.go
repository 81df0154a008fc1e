package zk

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// endedHold returns a hold of a session of its own, which has ended.
func endedHold(b *Backend) *backend.Hold {
	s := newSession(b)
	s.timeout = time.Minute
	s.end(errExpired)
	h := &backend.Hold{}
	h.State = &hold{session: s, Hold: h, path: "/a/b", dir: "/a", released: make(chan struct{})}
	return h
}

// TestStalledSessionDelaysNoOther gives back the hold of one session together with
// those of many sessions that do not answer.
func TestStalledSessionDelaysNoOther(t *testing.T) {
	const stalled = 200
	b := new(Backend)
	healthy := endedHold(b)
	holds := []*backend.Hold{healthy}
	for range stalled {
		h := endedHold(b)
		h.State.(*hold).nodeMu.Lock()
		holds = append(holds, h)
	}
	released, returned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(returned)
		b.ReleaseAll(context.Background(), holds, func(h *backend.Hold, err error) {
			if !errors.Is(err, backend.ErrLost) {
				t.Errorf("a hold of a session that has ended: %v", err)
			}
			if h == healthy {
				close(released)
			}
		})
	}()
	select {
	case <-released:
	case <-time.After(5 * time.Second):
		t.Error("the healthy session waits for the stalled ones")
	}
	for _, h := range holds[1:] {
		h.State.(*hold).nodeMu.Unlock()
	}
	<-returned
}

// TestLossWithoutAnObserver loses a hold that nobody observes.
func TestLossWithoutAnObserver(t *testing.T) {
	_, b, own := inSession(t)
	h := acquire(t, b, "m")
	own.end(errExpired)
	if err := b.Release(t.Context(), h); err == nil {
		t.Error("the hold of a session that is over was given back")
	}
}
