package quorum

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Two of three nodes refuse. The third, which answers a little later, is not blamed; one that
// does not answer is.
func TestWhoIsToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Backend{need: 2, nodes: make([]*node, 3)}
		names := []string{"a:1", "b:2", "c:3"}
		refused := backend.Fail(backend.ErrUnavailable, errors.New("refused"))
		results := make(chan check, 3)
		results <- check{0, refused}
		results <- check{1, refused}
		time.AfterFunc(openGrace/2, func() { results <- check{2, nil} })
		_, err := b.awaitNodes(t.Context(), results, names)
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Fatalf("the error is %v", err)
		}
		if said := err.Error(); !strings.Contains(said, "a:1") || !strings.Contains(said, "b:2") || strings.Contains(said, "c:3") {
			t.Errorf("of nodes a and b, which refuse, it is said: %v", err)
		}
		results <- check{0, nil}
		results <- check{1, nil}
		errs, err := b.awaitNodes(t.Context(), results, names)
		if err != nil || errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], errOverdue) {
			t.Errorf("of node c, which is silent, it is said: %v, %v", errs, err)
		}
	})
}

// TestOpenWhoseTimeEndsWithEnoughNodes has the context end while a node may still answer that is not
// needed.
func TestOpenWhoseTimeEndsWithEnoughNodes(t *testing.T) {
	b := &Backend{nodes: make([]*node, 3), need: 2}
	names := []string{"a", "b", "c"}
	for enough := range 4 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), openGrace/2)
			defer cancel()
			results := make(chan check, len(names))
			for i := range min(enough, len(names)) {
				results <- check{i, nil}
			}
			errs, err := b.awaitNodes(ctx, results, names)
			switch {
			case enough < b.need && !errors.Is(err, backend.ErrUnavailable):
				t.Errorf("%d of three: %v", enough, err)
			case enough >= b.need && (err != nil || errs[1] != nil):
				t.Errorf("%d of three: %v, %v", enough, errs, err)
			}
		})
	}
}

// TestOpenHearsWhoHasAnswered has the context end when the answers of all nodes are there.
func TestOpenHearsWhoHasAnswered(t *testing.T) {
	b := &Backend{nodes: make([]*node, 3), need: 2}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // which of them is looked at first is a matter of chance
		results := make(chan check, len(b.nodes))
		for i := range b.nodes {
			results <- check{i, nil}
		}
		errs, err := b.awaitNodes(ctx, results, []string{"a", "b", "c"})
		if err != nil || errors.Join(errs...) != nil {
			t.Fatalf("all have answered: %v, %v", errs, err)
		}
	}
}
