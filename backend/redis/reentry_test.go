package redis

import (
	"testing"

	"github.com/dlock-go/dlock/backend"
)

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
