package main

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

func openDB(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Three instances wait for the lock together, and then each migration runs once.
func TestEachMigrationRunsOnce(t *testing.T) {
	t.Parallel()
	url, _ := try.Postgres(t)
	db := openDB(t, url)
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	other := try.Open(t, url, nil)
	lease, err := other.Mutex("migrations").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	const instances = 3
	for range instances {
		go func() { ended <- migrate(t.Context(), url, files) }()
	}
	try.Await(t, "all wait", func() bool { return try.Waiters(t, other, "migrations") == instances })
	if n := number(t, db, "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'goose%'"); n != 0 {
		t.Error("an instance has begun without the lock")
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range instances {
		if err := try.Receive(t, "the end of an instance", ended); err != nil {
			t.Error(err)
		}
	}
	if n := number(t, db, "SELECT count(*) FROM orders"); n != 1 {
		t.Errorf("%d orders, want the one of the second migration", n)
	}
	if n := number(t, db, "SELECT count(*) FROM goose_db_version WHERE version_id > 0"); n != 2 {
		t.Errorf("%d versions, want 2", n)
	}
}

// A lock that is lost stops the migration that runs, and its transaction is rolled back.
func TestLostLockRollsBack(t *testing.T) {
	t.Parallel()
	url, _ := try.Postgres(t)
	db := openDB(t, url)
	ended := make(chan error)
	go func() {
		ended <- migrate(t.Context(), url, fstest.MapFS{"1_slow.sql": &fstest.MapFile{Data: []byte(
			"-- +goose Up\nCREATE TABLE half (id int);\nSELECT pg_sleep(600);\n-- +goose Down\n")}})
	}()
	try.Await(t, "the migration runs", func() bool {
		return number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'") == 1
	})
	number(t, db, "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'")
	if err := try.Receive(t, "the end", ended); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if n := number(t, db, "SELECT count(*) FROM pg_tables WHERE tablename = 'half'"); n != 0 {
		t.Error("half a migration stayed")
	}
}

func TestNoServerNoMigration(t *testing.T) {
	t.Parallel()
	url, postgres := try.Postgres(t)
	if err := postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := migrate(context.Background(), url, embedded); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
