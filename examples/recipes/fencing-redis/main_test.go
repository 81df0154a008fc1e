package main

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

func connect(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestStaleWriteIsRefused(t *testing.T) {
	url, _ := try.Redis(t)
	rdb := connect(t, url)
	stale, live := try.TwoTokens(t, url, "orders/42")
	for _, write := range []struct {
		state string
		token uint64
		want  error
	}{
		{"paid", stale, nil}, // nobody has written since: harmless
		{"packed", live, nil},
		{"shipped", live, nil}, // a holder may write as often as it likes
		{"cancelled", stale, errStale},
		{"lost", 0, errStale}, // the token of no lock at all
	} {
		if err := save(t.Context(), rdb, "order:42", write.state, write.token); !errors.Is(err, write.want) {
			t.Errorf("%s: got %v, want %v", write.state, err, write.want)
		}
	}
	if state := rdb.HGet(t.Context(), "order:42", "state").Val(); state != "shipped" {
		t.Errorf("the order is %s", state)
	}
}

// Tokens are compared as numbers are, also above 2^53.
func TestTokensOfAnySize(t *testing.T) {
	url, _ := try.Redis(t)
	rdb := connect(t, url)
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
