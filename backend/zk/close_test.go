package zk

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

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
	b := new(Backend)
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
	b := &Backend{opts: Options{Credentials: func(context.Context) (string, string, error) {
		close(called)
		<-letGo
		return "", "", errNoAnswer
	}}}
	if _, err := b.session(0); err != nil {
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
