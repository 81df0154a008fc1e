package redis

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// aState is a hold that was granted at the given µs, received at began, and
// lasts for ms.
func aState(us int64, began time.Time, ms int64) *holdState {
	s := &holdState{token: us, us: us, received: began.Sub(epoch)}
	s.expiry.Store(us/1000 + ms)
	return s
}

func TestTransferStaysBehindTheServersClock(t *testing.T) {
	const us = 1_700_000_000_000_000
	began := time.Now()
	s := aState(us, began, 30_000)
	if token, ok := s.nextToken(began); ok {
		t.Errorf("%d at once", token)
	}
	if token, ok := s.nextToken(began.Add(-time.Second)); ok {
		t.Errorf("%d by a clock that has stepped back", token)
	}
	at := began.Add(10 * time.Microsecond) // 9.995 by a clock that may be fast
	for want := uint64(us + 1); want <= us+9; want++ {
		if token, ok := s.nextToken(at); !ok || token != want {
			t.Fatalf("%d, %v, want %d", token, ok, want)
		}
	}
	if token, ok := s.nextToken(at); ok {
		t.Errorf("%d after 10 µs", token)
	}
}

func TestTransferStaysWithinTheLease(t *testing.T) {
	const us = 1_700_000_000_000_000
	began := time.Now()
	s := aState(us, began, 1)
	late := began.Add(time.Minute)
	given := 0
	for {
		token, ok := s.nextToken(late)
		if !ok {
			break
		}
		if given++; token >= uint64(s.expiry.Load())*1000 {
			t.Fatalf("%d is not before the end of the lease", token)
		}
	}
	if given != 999 {
		t.Errorf("%d tokens in a lease of 1 ms", given)
	}
	s.expiry.Add(1) // renewed
	if token, ok := s.nextToken(late); !ok || token != us+1000 {
		t.Errorf("%d, %v after a renewal", token, ok)
	}
}

// TestTransferIsOfAnExclusiveHold also says that a clock that went back before
// the grant gives no room.
func TestTransferIsOfAnExclusiveHold(t *testing.T) {
	const us = 1_700_000_000_000_000
	began := time.Now().Add(-time.Second)
	b := new(Backend)
	hold := func(s *holdState, fixed bool) *backend.Hold {
		return &backend.Hold{Request: backend.Request{Fixed: fixed}, State: s}
	}
	reader, ahead := aState(us, began, 30_000), aState(us, began, 30_000)
	reader.shared.Store(true)
	ahead.token += 3_600_000_000
	for what, h := range map[string]*backend.Hold{
		"a reader":                  hold(reader, false),
		"a hold of a fixed length":  hold(aState(us, began, 30_000), true),
		"a token ahead of the time": hold(ahead, false),
	} {
		if token, ok := b.Transfer(h); ok {
			t.Errorf("%s passes on %d", what, token)
		}
	}
	if _, ok := b.Transfer(hold(aState(us, began, 30_000), false)); !ok {
		t.Error("a writer cannot pass its hold on")
	}
}

// TestTransferredTokensOutliveTheHold has the server give out higher tokens than
// those that were passed on, whatever became of the hold.
func TestTransferredTokensOutliveTheHold(t *testing.T) {
	ctx := within(t)
	b := New(plainClient(t, shared), nil)
	t.Cleanup(func() { _ = b.Close(within(t)) })
	ends := map[string]func(h *backend.Hold){
		"release": func(h *backend.Hold) {
			must[any](t)(nil, b.Release(ctx, h))
		},
		"downgrade": func(h *backend.Hold) {
			must[any](t)(nil, b.Downgrade(ctx, h))
			must[any](t)(nil, b.Release(ctx, h))
		},
		"renew, then released without": func(h *backend.Hold) {
			b.Renew(ctx, []*backend.Hold{h}, func(_ *backend.Hold, err error) { must[any](t)(nil, err) })
			stateOf(h).used.Store(0)
			must[any](t)(nil, b.Release(ctx, h))
		},
	}
	for what, end := range ends {
		r := backend.Request{Name: t.Name() + what, ID: backend.ID{Client: "client", Seq: 1}, TTL: time.Minute}
		h := must[*backend.Hold](t)(b.Acquire(ctx, r))
		// As if the server's clock had run on, and stepped back since.
		far := h.Token + 20_000_000
		stateOf(h).used.Store(far)
		end(h)
		r.ID.Seq = 2
		next := must[*backend.Hold](t)(b.Acquire(ctx, r))
		if next.Token <= far {
			t.Errorf("%s: token %d after %d", what, next.Token, far)
		}
		must[any](t)(nil, b.Release(ctx, next))
	}
}
