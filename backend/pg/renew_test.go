package pg

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
)

type noObserver struct{}

func (noObserver) Queued()    {}
func (noObserver) Lost(error) {}
func (noObserver) Wanted()    {}

// TestHoldCountsFromItsRequest has every answer come late. What the server
// grants counts from before that, and is no longer than the lease.
func TestHoldCountsFromItsRequest(t *testing.T) {
	const late, lease = 200 * time.Millisecond, time.Minute
	ctx := testContext(t)
	p := newPeer(t, shared.Addr(), Options{}, lease)
	unlock(t, lock(t, p.Mutex(nameOf(t, "warm")))) // a connection
	p.proxy.Delay(faultnet.ToClient, late, 0)
	counts := func(what string, h *backend.Hold) {
		t.Helper()
		if age := time.Since(h.Sent); age < late {
			t.Errorf("%s counts from %v ago, its answer came after %v", what, age, late)
		}
		if h.Granted != lease {
			t.Errorf("%s is believed in for %v, the lease is %v", what, h.Granted, lease)
		}
	}
	h, err := p.backend.Acquire(ctx, backend.Request{
		Name: nameOf(t), ID: backend.ID{Client: nameOf(t), Seq: 1}, Mode: backend.Exclusive, TTL: lease, Wait: true, Observer: noObserver{},
	})
	must(t, err)
	counts("a hold", h)
	h.Sent = time.Time{}
	p.backend.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, err error) { must(t, err) })
	counts("a renewal", h)
	must(t, p.backend.Release(ctx, h))
}
