package conformance_test

import (
	"fmt"
	"testing"

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
		Wipe:     func(testing.TB) { server.Wipe() },
		Optional: []string{"BatchReleaser", "Breaker", "Downgrader", "Expirer", "Inspector", "Pinger", "Reenterer", "Renewer", "TokenRegister", "Transferer"},
	}
}
