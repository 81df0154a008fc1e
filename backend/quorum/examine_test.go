package quorum_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// What is found names its node; a node that is silent costs a warning, and too many of
// them make a fault.
func TestExamine(t *testing.T) {
	for silent, want := range []backend.Level{backend.OK, backend.Warning, backend.Fault} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			b := s.backendOf(t)
			s.freeze(silent)
			defer s.thaw()
			worst := backend.OK
			named := 0
			ok(t, b.Examine(t.Context(), func(f backend.Finding) {
				worst = max(worst, f.Level)
				if strings.HasPrefix(f.Text, "node ") {
					named++
				}
			}))
			must(t, worst == want && named == 3, "%d silent: level %v, %d nodes", silent, worst, named)
		})
	}
}

// A node that has restarted lately is named with the time until it votes. Too few that vote
// are a fault.
func TestExamineNodesThatDoNotVote(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		b := s.backendOf(t)
		examine := func() (faults, waits int) {
			ok(t, b.Examine(t.Context(), func(f backend.Finding) {
				if f.Level == backend.Fault {
					faults++
				}
				if strings.Contains(f.Text, "takes part in") {
					waits++
				}
			}))
			return faults, waits
		}
		faults, waits := examine()
		must(t, faults == 1 && waits == 3, "new nodes: %d faults, %d are named", faults, waits)
		time.Sleep(delay)
		faults, waits = examine()
		must(t, faults == 0 && waits == 0, "old nodes: %d faults, %d are named", faults, waits)
	})
}
