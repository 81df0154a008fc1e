package redis

import (
	"errors"
	"fmt"
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

// TestReadersOutliveTheMainKey deletes the key of a lock that readers have, as somebody
// does who wants it free, and a server that evicts. The readers stand in another key, and
// are renewed: the main key, which is there again then, says so, and lets no writer in.
func TestReadersOutliveTheMainKey(t *testing.T) {
	ctx := within(t)
	c := plainClient(t, shared)
	b := New(c, nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	for what, renew := range map[string]func(h *backend.Hold) error{
		"renewed": func(h *backend.Hold) (failed error) {
			b.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, err error) { failed = err })
			return failed
		},
		"entered again": func(h *backend.Hold) error { return b.Reenter(ctx, h, 2, 2) },
	} {
		t.Run(what, func(t *testing.T) {
			asked := uint64(0)
			request := func(m backend.Mode) backend.Request {
				asked++
				return backend.Request{Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: asked}, Mode: m, TTL: limit, Observer: silentObserver{}}
			}
			reader := must[*backend.Hold](t)(b.Acquire(ctx, request(backend.Shared)))
			must[int64](t)(c.Del(ctx, mainKey(t.Name())).Result())
			must[any](t)(nil, renew(reader))
			if left := c.PTTL(ctx, mainKey(t.Name())).Val(); left <= 0 {
				t.Errorf("the main key stays for %v", left)
			}
			_, err := b.Acquire(ctx, request(backend.Exclusive))
			is(t, err, backend.ErrHeld)
			must[any](t)(nil, b.Release(ctx, reader))
			writer := must[*backend.Hold](t)(b.Acquire(ctx, request(backend.Exclusive)))
			must[any](t)(nil, b.Release(ctx, writer))
		})
	}
}

// TestRenewalOfWhatCannotBeRead changes one lock by hand. That is a loss of that hold, or
// none, and no reason to lose others that are renewed by the same request.
func TestRenewalOfWhatCannotBeRead(t *testing.T) {
	ctx := within(t)
	c := plainClient(t, shared)
	b := New(c, nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	for what, change := range map[string]func(key string) error{
		"no end":       func(k string) error { return c.HDel(ctx, k, "e").Err() },
		"another end":  func(k string) error { return c.HSet(ctx, k, "e", "soon").Err() },
		"another time": func(k string) error { return c.HSet(ctx, k, "d", "soon").Err() },
		"no token":     func(k string) error { return c.HSet(ctx, k, "t", "none").Err() },
	} {
		t.Run(what, func(t *testing.T) {
			var holds []*backend.Hold
			for i := range 3 {
				h := must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{
					Name: fmt.Sprintf("%s/%d", t.Name(), i), ID: backend.ID{Client: t.Name(), Seq: uint64(i + 1)}, TTL: limit, Observer: silentObserver{},
				}))
				stateOf(h).raise(h.Token) // so that the renewal tells a token
				holds = append(holds, h)
			}
			must[any](t)(nil, change(mainKey(holds[1].Name)))
			b.Renew(ctx, holds, func(h *backend.Hold, err error) {
				if err != nil && (h != holds[1] || !errors.Is(err, backend.ErrLost)) {
					t.Errorf("%s: %v", h.Name, err)
				}
			})
			must[int64](t)(c.Del(ctx, mainKey(holds[1].Name)).Result())
		})
	}
}

// TestLeaseIsNoLongerThanItsTTL has the server's clock go back under a hold, so that the server
// keeps it for far longer than its TTL, until the clock is put right: no holder counts on more
// than its TTL.
func TestLeaseIsNoLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	ahead := func() { // as if the clock had gone back by a day since the grant
		c.HSet(ctx, mainKey(t.Name()), "e", time.Now().Add(24*time.Hour).UnixMilli())
	}
	b := newBackend(t, c, &Options{PollOnly: true})
	r := requestOf(t, "a", backend.Exclusive)
	h := must[*backend.Hold](t)(b.Acquire(ctx, r))
	ahead()
	b.Renew(ctx, []*backend.Hold{h}, func(h *backend.Hold, err error) {
		must[any](t)(nil, err)
		if h.Granted > r.TTL {
			t.Errorf("a renewal counts on %v, more than the TTL of %v", h.Granted, r.TTL)
		}
	})
	again := b.newAcquisition(&r, nil) // as after a lost reply
	again.id = stateOf(h).id
	h = must[*backend.Hold](t)(again.complete(ctx, must[answer](t)(again.ask(ctx, "t")), nil))
	if h.Granted > r.TTL {
		t.Errorf("a grant counts on %v, more than the TTL of %v", h.Granted, r.TTL)
	}
	must[any](t)(nil, b.Release(ctx, h))
}

// TestRenewalAfterADowngrade has a renewal of an exclusive hold come to the server when that has made
// it a shared one. It does not say that the hold is lost: nobody would give that back.
func TestRenewalAfterADowngrade(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	b := newBackend(t, plainClient(t, shared), nil)
	h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "client", backend.Exclusive)))
	call := renewCall([]*backend.Hold{h}, 0)
	must[any](t)(nil, b.Downgrade(ctx, h))
	a, expiries, err := b.extend(ctx, limit, call, 1)
	must[any](t)(nil, err)
	if err := renewed(h, true, a, expiries[0]); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a renewal from before a downgrade: %v", err)
	}
	must[any](t)(nil, b.Release(ctx, h))
}
