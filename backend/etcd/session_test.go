package etcd

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// TestNoRoomInARetiredSession gives up a key of a session whose lease is about to be
// revoked: nobody else may take its room.
func TestNoRoomInARetiredSession(t *testing.T) {
	s := &session{ctx: context.Background(), reserved: maxKeys, holds: make(map[*hold]struct{}), claimed: make(map[string]bool)}
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
	s := &session{ctx: context.Background(), backend: &Backend{}, claimed: make(map[string]bool)}
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
