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
	s.freeKey(&lockKey{}, false)
	if s.reserve() {
		t.Error("a session has room that is about to be revoked")
	}
}
