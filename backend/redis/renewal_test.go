package redis

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// TestRenewalLastsAsLongAsItsContext stops a server for longer than an attempt to take
// a lock may last. The renewal on its way is answered, and is not given up before.
func TestRenewalLastsAsLongAsItsContext(t *testing.T) {
	s := server.Start(t, server.Redis{})
	b := New(plainClient(t, s), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	h := must[*backend.Hold](t)(b.Acquire(within(t), backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit, Observer: deaf{},
	}))
	must[any](t)(nil, s.Pause())
	done := make(chan error, 1)
	go b.Renew(within(t), []*backend.Hold{h}, func(_ *backend.Hold, err error) { done <- err })
	select {
	case err := <-done:
		must[any](t)(nil, s.Resume())
		t.Fatalf("given up, though its caller waits: %v", err)
	case <-time.After(replyTimeout(limit) + 100*time.Millisecond):
	}
	must[any](t)(nil, s.Resume())
	must[any](t)(nil, <-done)
}
