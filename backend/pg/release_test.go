package pg

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// TestReleaseAll gives many locks back with few statements, and again, and when their
// session is gone.
func TestReleaseAll(t *testing.T) {
	const n = 500
	p := newPeer(t, shared.Addr(), Options{}, 30*time.Second)
	take := func() []*backend.Hold {
		var holds []*backend.Hold
		for i := range n {
			h, err := p.backend.Acquire(testContext(t), requestFor(nameOf(t, fmt.Sprint(i))))
			must(t, err)
			holds = append(holds, h)
		}
		return holds
	}
	release := func(holds []*backend.Hold, want error) {
		t.Helper()
		reported := 0
		p.backend.ReleaseAll(testContext(t), holds, func(h *backend.Hold, err error) {
			reported++
			if (err == nil) != (want == nil) {
				t.Errorf("%v, want %v", err, want)
			}
		})
		if reported != n {
			t.Errorf("%d of %d reported", reported, n)
		}
	}
	holds := take()
	before := p.proxy.Stats().Requests
	release(holds, nil)
	if sent := p.proxy.Stats().Requests - before; sent > 5 {
		t.Errorf("%d requests for %d locks", sent, n)
	}
	a := admin(t, shared.Addr())
	if left := inLocks(t, a, p.backend, nameOf(t, "0"), true); left != 0 {
		t.Errorf("%d locks left", left)
	}
	release(holds, backend.ErrLost)
	holds = take()
	for _, s := range p.backend.alive() {
		s.kill(errSilent)
	}
	eventually(t, "the loss is known", func() bool { return p.backend.connections() == 0 })
	release(holds, backend.ErrLost)
}

// holdOf takes a lock with no client around the backend.
func holdOf(t testing.TB, b *Backend, mode backend.Mode) *backend.Hold {
	t.Helper()
	r := requestFor(nameOf(t))
	r.Mode = mode
	h, err := b.Acquire(testContext(t), r)
	must(t, err)
	return h
}

func requestFor(name string) backend.Request {
	return backend.Request{Name: name, Mode: backend.Exclusive, TTL: time.Minute, Wait: true}
}

// TestTransfer passes a hold on for as long as there are tokens: each is
// greater than the one before, and the next holder's is greater than all.
func TestTransfer(t *testing.T) {
	p := peers(t, shared.Addr(), 2)
	h := holdOf(t, p[0].backend, backend.Exclusive)
	last := h.Token
	passes := 0
	for token, ok := p[0].backend.Transfer(h); ok; token, ok = p[0].backend.Transfer(h) {
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
		passes++
	}
	if passes != numberStep-1 {
		t.Errorf("passed on %d times, want %d", passes, numberStep-1)
	}
	must(t, p[0].backend.Release(testContext(t), h))
	next := holdOf(t, p[1].backend, backend.Exclusive)
	if next.Token <= last {
		t.Errorf("token %d of the next holder after %d", next.Token, last)
	}
	must(t, p[1].backend.Release(testContext(t), next))
}

// TestTransferRefused asks for tokens for holds that cannot be passed on.
func TestTransferRefused(t *testing.T) {
	b := newPeer(t, shared.Addr(), Options{}, 10*time.Second).backend
	refused := func(why string, h *backend.Hold) {
		t.Helper()
		if token, ok := b.Transfer(h); ok {
			t.Errorf("%s was passed on with token %d", why, token)
		}
	}
	reader := holdOf(t, b, backend.Shared)
	refused("a reader's hold", reader)
	must(t, b.Release(testContext(t), reader))
	writer := holdOf(t, b, backend.Exclusive)
	must(t, b.Release(testContext(t), writer))
	refused("a released hold", writer)
	lost := holdOf(t, b, backend.Exclusive)
	for _, s := range b.alive() {
		s.kill(errSilent)
	}
	eventually(t, "the loss is known", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.locks) == 0
	})
	refused("a lost hold", lost)
}

// TestTransferThenDowngrade has a reader join a hold that was passed on before
// it was shared: its token is no less than the last writer's.
func TestTransferThenDowngrade(t *testing.T) {
	b := newPeer(t, shared.Addr(), Options{}, 10*time.Second).backend
	h := holdOf(t, b, backend.Exclusive)
	token, ok := b.Transfer(h)
	if !ok {
		t.Fatal("not passed on")
	}
	h.Token = token
	must(t, b.Downgrade(testContext(t), h))
	reader := holdOf(t, b, backend.Shared)
	if reader.Token < token {
		t.Errorf("a reader's token %d after the writer's %d", reader.Token, token)
	}
	must(t, b.Release(testContext(t), reader))
	must(t, b.Release(testContext(t), h))
}
