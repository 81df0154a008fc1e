package zk

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestNodeAskedForIsNotForgotten has a caller ask for a lock by itself, and leave
// before anybody has looked at the answer.
func TestNodeAskedForIsNotForgotten(t *testing.T) {
	s := server.Start(t, server.ZooKeeper{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := Connect(ctx, []string{s.Addr()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(ctx)
	own, err := b.session()
	if err != nil {
		t.Fatal(err)
	}
	a := newAttempt(b, backend.Request{Name: "m", Mode: backend.Exclusive, Wait: true})
	if err := own.ensure(a.dir); err != nil {
		t.Fatal(err)
	}
	if a.asked = own.send(a.draft()); a.asked.err != nil {
		t.Fatal(a.asked.err)
	}
	a.open()
	if _, err := a.leave(errNoAnswer); err != errNoAnswer {
		t.Fatal(err)
	}
	a.run()
	children, _, err := own.children(a.dir)
	if err != nil || len(children) > 0 {
		t.Errorf("left behind: %v, %v", children, err)
	}
}
