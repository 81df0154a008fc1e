package main

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

func openDB(t *testing.T) *sql.DB {
	url, _ := try.Postgres(t)
	db := try.Database(t, url)
	if _, err := db.ExecContext(t.Context(), createTable); err != nil {
		t.Fatal(err)
	}
	return db
}

func load(t *testing.T, db *sql.DB, order int64) (state string, fence uint64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT state, fence FROM orders WHERE id = $1", order).Scan(&state, &fence); err != nil {
		t.Fatal(err)
	}
	return state, fence
}

func TestStaleWriteIsRefused(t *testing.T) {
	db := openDB(t)
	url, _ := try.Redis(t)
	stale, live := try.TwoTokens(t, url, "orders/42")
	try.LateWrites(t, stale, live, errStale, func(state string, token uint64) error {
		return save(t.Context(), db, 42, state, token)
	})
	if state, fence := load(t, db, 42); state != "shipped" || fence != live {
		t.Errorf("the order is %s by %d", state, fence)
	}
}

// Writes that come at the same moment leave the one with the greatest token.
func TestGreatestTokenWins(t *testing.T) {
	db := openDB(t)
	const writers = 50
	ended := make(chan error)
	for token := range uint64(writers) {
		go func() { ended <- save(t.Context(), db, 42, "by", token) }()
	}
	for range writers {
		if err := try.Receive(t, "a writer", ended); err != nil && !errors.Is(err, errStale) {
			t.Error(err)
		}
	}
	if _, fence := load(t, db, 42); fence != writers-1 {
		t.Errorf("the last writer was %d", fence)
	}
}
