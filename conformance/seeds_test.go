package conformance_test

import (
	"testing"

	"github.com/dlock-go/dlock/conformance"
)

// TestSeeds shows that the harness of a backend lets the suite see what could be
// wrong with it.
func TestSeeds(t *testing.T) {
	names := chosen(t)
	if len(names) > 1 && everything() {
		return // those of TestConformance do it
	}
	for _, name := range names {
		if targets[name].seeded {
			t.Run(name, func(t *testing.T) { conformance.TestSeeds(t, targets[name].harness(t)) })
		}
	}
}
