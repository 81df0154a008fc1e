package backend_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// A context may end while a backend looks whether it has: Inspect of a long queue of ZooKeeper and
// Examine of etcd ask for the Cause of one that goes on. What they get is nil or the end, with a text.
func TestCauseOfAContextThatEndsMeanwhile(t *testing.T) {
	for range 20_000 {
		ctx, cancel := context.WithCancelCause(t.Context())
		go cancel(errors.New("enough"))
		var err error
		for err == nil {
			err = backend.Cause(ctx)
		}
		if backend.OwnersCause(err) == nil {
			t.Fatal("the end of the context has no cause, and its text panics")
		}
	}
}

// A backend that looks at its context by itself finds what the comment of Begin says.
func TestCallsEndWithErrClosed(t *testing.T) {
	var c backend.Calls
	ctx, end, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go c.Close()
	<-ctx.Done()
	if got := context.Cause(ctx); !errors.Is(got, backend.ErrClosed) {
		t.Errorf("the cause is %T %v", got, got)
	}
	end()
}
