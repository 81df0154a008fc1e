package main

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// database starts Postgres and returns its URL as golang-migrate wants it.
func database(t *testing.T) (url string, db *sql.DB) {
	url, _ = try.Postgres(t)
	return strings.Replace(url, "postgres:", "pgx5:", 1), try.Database(t, url)
}

// Three instances wait for the lock together, and then each migration runs once.
func TestEachMigrationRunsOnce(t *testing.T) {
	t.Parallel()
	url, db := database(t)
	redis, _ := try.Redis(t)
	try.Migrates(t, redis, db, func() error { return migrateUp(t.Context(), try.Open(t, redis, nil), url, embedded) })
	if n := try.Number(t, db, "SELECT count(*) FROM invoices"); n != 1 {
		t.Errorf("%d invoices, want the one of the second migration", n)
	}
	if n := try.Number(t, db, "SELECT version FROM schema_migrations WHERE NOT dirty"); n != 2 {
		t.Errorf("version %d, want 2", n)
	}
}

// Once the lock is lost the migration that runs is the last. It is made to wait for the
// test by a lock of Postgres.
func TestLostLockBeginsNoFurtherMigration(t *testing.T) {
	t.Parallel()
	url, db := database(t)
	gate, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	if _, err := gate.ExecContext(t.Context(), "SELECT pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	m := open(t, url, fstest.MapFS{
		"migrations/1_wait.up.sql":  {Data: []byte("SELECT pg_advisory_xact_lock(7)")},
		"migrations/2_never.up.sql": {Data: []byte("CREATE TABLE never (id int)")},
	})
	ctx, lose := context.WithCancelCause(t.Context()) // as the context of a lease ends
	ended := make(chan error, 1)
	go func() { ended <- up(ctx, m) }()
	try.Await(t, "the first migration waits", func() bool {
		return try.Number(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1
	})
	lose(dlock.ErrLost)
	try.Await(t, "it is told to stop", func() bool { return len(m.GracefulStop) == 1 })
	if _, err := gate.ExecContext(t.Context(), "SELECT pg_advisory_unlock(7)"); err != nil {
		t.Fatal(err)
	}
	if err := try.Receive(t, "the end", ended); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if n := try.Number(t, db, "SELECT version FROM schema_migrations WHERE NOT dirty"); n != 1 {
		t.Errorf("version %d, want 1", n)
	}
}

func open(t *testing.T, url string, files fs.FS) *migrate.Migrate {
	source, err := iofs.New(files, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrate.NewWithSourceInstance("iofs", source, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Without the lock server the database is not even opened: there is none at this address.
func TestNoServerNoMigration(t *testing.T) {
	t.Parallel()
	url, redis := try.Redis(t)
	client := try.Open(t, url, nil)
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := migrateUp(t.Context(), client, "pgx5://127.0.0.1:1/none", embedded); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
