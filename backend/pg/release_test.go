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
