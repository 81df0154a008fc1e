package quorum_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
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

// A farExaminer takes long to examine a node: each step is a round trip.
type farExaminer struct{ *memory.Backend }

func (n farExaminer) Examine(ctx context.Context, report func(backend.Finding)) error {
	for range 22 {
		select {
		case <-time.After(150 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return n.Backend.Examine(ctx, report)
}

// Nodes that are far away are examined to the end, and none is said to be silent.
func TestExamineFarNodes(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		all := s.links()
		for i := range all {
			all[i] = farExaminer{all[i].(*memory.Backend)}
		}
		b, err := quorum.New(all, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		ok(t, b.Examine(t.Context(), func(f backend.Finding) {
			if f.Level > backend.OK {
				t.Errorf("%+v", f)
			}
		}))
		ok(t, b.Close(t.Context()))
	})
}
