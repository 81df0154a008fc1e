//go:build linux

package file

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Who draws a token asks nobody, and the next holder has a greater one, whatever has
// become of the one that drew.
func TestDrawnTokens(t *testing.T) {
	dir := t.TempDir()
	one, two := newBackend(t, dir), newBackend(t, dir)
	r := backend.Request{Name: "lock", ID: backend.ID{Client: "a", Seq: 1}, Mode: backend.Exclusive, TTL: time.Second}
	for name, end := range map[string]func(*backend.Hold){
		"released": func(h *backend.Hold) { must(t, one.Release(t.Context(), h)) },
		"died": func(h *backend.Hold) {
			h.State.(*hold).end(h.State.(*hold).lockFile)
			h.State.(*hold).file.Close()
		},
		"downgraded": func(h *backend.Hold) {
			must(t, one.Downgrade(t.Context(), h))
			must(t, one.Release(t.Context(), h))
		},
	} {
		h, err := one.Acquire(t.Context(), r)
		must(t, err)
		for uint64(time.Now().UnixMicro()) < h.Token+1000 { // who died has left it ahead of the clock
			time.Sleep(time.Millisecond)
		}
		last := h.Token
		for range 100 {
			token, ok := one.Transfer(h)
			if !ok || token <= last {
				t.Fatalf("%s: drew %d after %d: %v", name, token, last, ok)
			}
			last = token
		}
		h.State.(*hold).mu.Lock() // a renewal that takes long
		if _, ok := one.Transfer(h); !ok {
			t.Errorf("%s: no token during a renewal", name)
		}
		h.State.(*hold).mu.Unlock()
		end(h)
		next, err := two.Acquire(t.Context(), r)
		must(t, err)
		if next.Token <= last {
			t.Errorf("%s: token %d came after %d", name, next.Token, last)
		}
		must(t, two.Release(t.Context(), next))
	}
	h, err := one.Acquire(t.Context(), r)
	must(t, err)
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		if token, ok := one.Transfer(h); ok && token >= uint64(time.Now().UnixMicro()) {
			t.Fatalf("token %d is ahead of the clock", token)
		}
	}
	must(t, one.Release(t.Context(), h))
}

func newBackend(t *testing.T, dir string) *Backend {
	t.Helper()
	b, err := New(&Options{Dir: dir})
	must(t, err)
	t.Cleanup(func() { must(t, b.Close(context.Background())) })
	return b
}
