package main

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

func TestStaleWriteIsRefused(t *testing.T) {
	url, _ := try.Redis(t)
	rdb := try.Connect(t, url)
	stale, live := try.TwoTokens(t, url, "orders/42")
	try.LateWrites(t, stale, live, errStale, func(state string, token uint64) error {
		return save(t.Context(), rdb, "order:42", state, token)
	})
	if state := rdb.HGet(t.Context(), "order:42", "state").Val(); state != "shipped" {
		t.Errorf("the order is %s", state)
	}
}

// Tokens are compared as numbers are, also above 2^53.
func TestTokensOfAnySize(t *testing.T) {
	url, _ := try.Redis(t)
	rdb := try.Connect(t, url)
	for _, tokens := range [][2]uint64{{9, 10}, {1 << 53, 1<<53 + 1}, {1<<63 - 2, 1<<63 - 1}} {
		rdb.Del(t.Context(), "order:42")
		if err := save(t.Context(), rdb, "order:42", "new", tokens[1]); err != nil {
			t.Fatal(err)
		}
		if err := save(t.Context(), rdb, "order:42", "old", tokens[0]); !errors.Is(err, errStale) {
			t.Errorf("%d after %d: got %v, want errStale", tokens[0], tokens[1], err)
		}
	}
}
