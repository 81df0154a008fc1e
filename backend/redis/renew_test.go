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
	t.Parallel()
	s := server.Start(t, server.Redis{})
	b := New(plainClient(t, s), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	h := must[*backend.Hold](t)(b.Acquire(within(t), backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit, Observer: silentObserver{},
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

// TestEntriesArriveInAnyOrder has counts of entries arrive twice, and after a
// later one: what the server keeps is the last that was sent.
func TestEntriesArriveInAnyOrder(t *testing.T) {
	ctx := within(t)
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	h := must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{Name: t.Name(), ID: backend.ID{Client: "client", Seq: 1}, TTL: limit}))
	c := plainClient(t, shared)
	for _, sent := range []struct {
		entries int
		seq     int64
		kept    string
	}{
		{2, 2, "2"},
		{2, 2, "2"}, // again: its reply was lost
		{3, 4, "3"},
		{1, 3, "3"}, // sent before it
		{2, 2, "3"},
		{1, 5, "1"},
	} {
		must[any](t)(nil, b.Reenter(ctx, h, sent.entries, sent.seq))
		if kept := c.HGet(ctx, mainKey(t.Name()), "n").Val(); kept != sent.kept {
			t.Errorf("after %d entries, number %d: the server keeps %s, want %s", sent.entries, sent.seq, kept, sent.kept)
		}
	}
	must[any](t)(nil, b.Release(ctx, h))
}
