package main

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/recipes/internal/try"
)

// Three instances wait for the lock together, and then each migration runs once.
func TestEachMigrationRunsOnce(t *testing.T) {
	t.Parallel()
	url, _ := try.Postgres(t)
	db := try.Database(t, url)
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	try.Migrates(t, url, db, func() error { return migrate(t.Context(), url, files) })
	if n := try.Number(t, db, "SELECT count(*) FROM customers"); n != 1 {
		t.Errorf("%d customers, want the one of the second migration", n)
	}
	if n := try.Number(t, db, "SELECT count(*) FROM goose_db_version WHERE version_id > 0"); n != 2 {
		t.Errorf("%d versions, want 2", n)
	}
}

// A lock that is lost stops the migration that runs, and its transaction is rolled back.
func TestLostLockRollsBack(t *testing.T) {
	t.Parallel()
	url, _ := try.Postgres(t)
	db := try.Database(t, url)
	ended := make(chan error)
	go func() {
		ended <- migrate(t.Context(), url, fstest.MapFS{"1_slow.sql": &fstest.MapFile{Data: []byte(
			"-- +goose Up\nCREATE TABLE half (id int);\nSELECT pg_sleep(600);\n-- +goose Down\n")}})
	}()
	try.Await(t, "the migration runs", func() bool {
		return try.Number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'") == 1
	})
	try.Number(t, db, "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'")
	if err := try.Receive(t, "the end", ended); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if n := try.Number(t, db, "SELECT count(*) FROM pg_tables WHERE tablename = 'half'"); n != 0 {
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
