package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// Many holds are given back with one request to each node, and those that are over are
// reported.
func TestReleaseAll(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		var all []backend.Backend
		for _, server := range s {
			all = append(all, memory.New(server))
		}
		b, err := quorum.New(all, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		defer func() { ok(t, b.Close(context.Background())) }()
		var holds []*backend.Hold
		for i := range 100 {
			h, err := b.Acquire(t.Context(), backend.Request{
				Name: fmt.Sprint(i), ID: backend.ID{Client: "c", Seq: uint64(i)}, Mode: backend.Exclusive, TTL: ttl,
			})
			ok(t, err)
			holds = append(holds, h)
		}
		synctest.Wait() // all nodes have granted, not two of three alone
		for _, server := range s[:2] {
			server.Evict("7")
		}
		s[2].Freeze()
		before := s[0].Ops()
		var mu sync.Mutex
		reported := make(map[string]error)
		b.ReleaseAll(t.Context(), holds, func(h *backend.Hold, err error) {
			mu.Lock()
			defer mu.Unlock()
			reported[h.Name] = err
		})
		for _, h := range holds {
			err, found := reported[h.Name]
			must(t, found && errors.Is(err, backend.ErrLost) == (h.Name == "7"), "%s: reported %v, %v", h.Name, found, err)
		}
		must(t, s[0].Ops()-before == 1, "%d requests", s[0].Ops()-before)
		s.thaw()
		s.empty(t)
	})
}
