package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// TestNoRoomInARetiredSession gives up a key of a session whose lease is about to be
// revoked: nobody else may take its room.
func TestNoRoomInARetiredSession(t *testing.T) {
	s := &session{ctx: context.Background(), backend: &Backend{}, granted: time.Minute, sent: time.Now(), reserved: maxKeys, holds: make(map[*hold]struct{}), claimed: make(map[string]bool)}
	var holds []*backend.Hold
	for range maxKeys {
		holds = append(holds, &backend.Hold{State: &hold{session: s}})
	}
	if !s.retireIfEmpty(holds) {
		t.Fatal("a session of which all is released was not retired")
	}
	s.freeKey(&lockKey{})
	if s.reserve() {
		t.Error("a session has room that is about to be revoked")
	}
}

// TestKeptNames claims keys whose names must not be used again: a session does not take
// them up for ever.
func TestKeptNames(t *testing.T) {
	s := &session{ctx: context.Background(), backend: &Backend{}, granted: time.Minute, sent: time.Now(), claimed: make(map[string]bool)}
	names := make(map[string]bool)
	for s.reserve() {
		k := s.claimKey(backend.Request{Name: "x"})
		if names[k.own] {
			t.Fatalf("%s is used again", k.own)
		}
		names[k.own] = true
		k.keep = true
		s.freeKey(k)
		if len(names) > 10*maxKeys {
			t.Fatalf("%d names are kept", len(names))
		}
	}
}

// TestNoRoomInAShortSession asks for room in sessions of which more or less is left than a
// request far away takes to join and to renew the lease.
func TestNoRoomInAShortSession(t *testing.T) {
	b := &Backend{}
	b.roundTrip.Observe(100 * time.Millisecond)
	for _, test := range []struct {
		granted, left time.Duration
		has           bool
	}{
		{time.Minute, 250 * time.Millisecond, false},
		{time.Minute, 10 * time.Second, true},
		{2 * time.Second, time.Second, true},
		{2 * time.Second, 0, false},
	} {
		s := &session{ctx: context.Background(), backend: b, granted: test.granted, sent: time.Now()}
		s.sent = s.sent.Add(test.left - s.left())
		if has := s.reserve(); has != test.has {
			t.Errorf("%v of %v are left, and there is room: %v", test.left, test.granted, has)
		}
	}
}
