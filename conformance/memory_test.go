package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/conformance"
)

func memoryHarness(t testing.TB) conformance.Harness {
	server := memory.NewServer()
	return conformance.Harness{
		Name:    "memory",
		Version: "1",
		Scheme:  "memory",
		TTL:     *ttl,
		Leased:  true,
		Open: func(t testing.TB, o dlock.Options) *conformance.Peer {
			b := memory.New(server)
			c, err := dlock.New(b, &o)
			if err != nil {
				t.Fatal(err)
			}
			return &conformance.Peer{
				Client:    c,
				Backend:   b,
				Cut:       func() func() { b.Cut(); return b.Heal },
				Delay:     b.Delay,
				DropReply: b.DropReply,
			}
		},
		Evict:   func(_ testing.TB, name string) { server.Evict(name) },
		Ops:     server.Ops,
		Waiting: func(_ testing.TB, name string) int { return server.Waiting(name) },
		Residue: func(testing.TB) (names []string) {
			for n := range server.Names() {
				names = append(names, fmt.Sprintf("name %d", n+1))
			}
			return names
		},
		State:    func(t testing.TB) string { return stateOf(t, server) },
		Wipe:     func(testing.TB) { server.Wipe() },
		Optional: []string{"BatchReleaser", "Breaker", "Downgrader", "Expirer", "Inspector", "Pinger", "Reenterer", "Renewer", "TokenRegister", "Transferer"},
	}
}

// stateOf is who holds which lock how often and until when, to a hundredth of a second.
func stateOf(t testing.TB, server *memory.Server) string {
	b := memory.New(server)
	defer b.Close(t.Context())
	now, all := time.Now(), []string{}
	for name, err := range b.Names(t.Context(), "") {
		must(t, err)
		s, err := b.Inspect(t.Context(), name)
		must(t, err)
		for _, h := range s.Holders {
			all = append(all, fmt.Sprintf("%s: %s entered %d times, until %v", name, h.Client, h.Entries, now.Add(h.Left).Round(10*time.Millisecond)))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
