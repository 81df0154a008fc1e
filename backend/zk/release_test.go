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

// hangingObserver does not return from Lost before it is let go.
type hangingObserver struct {
	backend.Observer
	called, letGo chan struct{}
}

func (o hangingObserver) Lost(error) {
	close(o.called)
	<-o.letGo
}

// TestCloseIsBounded closes a client while an owner is told of a loss and does not return.
func TestCloseIsBounded(t *testing.T) {
	b := &Backend{closed: make(chan struct{})}
	o := hangingObserver{called: make(chan struct{}), letGo: make(chan struct{})}
	defer close(o.letGo)
	h := endedHold(b)
	h.Observer = o
	b.reportLoss([]*hold{h.State.(*hold)}, errExpired)
	<-o.called
	closesInTime(t, b)
}

// TestCloseDuringCredentials closes a client while the credentials for a session are
// asked for, and do not come.
func TestCloseDuringCredentials(t *testing.T) {
	called, letGo := make(chan struct{}), make(chan struct{})
	defer close(letGo)
	b := &Backend{closed: make(chan struct{}), opts: Options{Credentials: func(context.Context) (string, string, error) {
		close(called)
		<-letGo
		return "", "", errNoAnswer
	}}}
	if _, err := b.session(); err != nil {
		t.Fatal(err)
	}
	<-called
	closesInTime(t, b)
}

// closesInTime closes b with a context that ends soon.
func closesInTime(t *testing.T, b *Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Close(ctx)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("Close goes on after its context has ended")
	}
}
