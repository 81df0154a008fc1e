// Command golang-migrate migrates a database before it serves. Any number of copies may
// start at once: one of them migrates, the others wait for it.
package main

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5" // pgx5://; or the driver of your database
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // or the backend that DLOCK_URL names
)

//go:embed migrations/*.sql
var embedded embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(ctx))
	if err := migrateUp(ctx, locks, os.Getenv("DATABASE_URL"), embedded); err != nil {
		log.Fatal(err) // do not serve on a database that may be half migrated
	}
	log.Println("the database is up to date")
}

// migrateUp runs the migrations that the database has not had.
func migrateUp(ctx context.Context, locks *dlock.Client, databaseURL string, files fs.FS) error {
	lock := locks.Mutex("migrations", dlock.WithMaxWait(5*time.Minute)) // longer than migrations take
	return dlock.Do(ctx, lock, func(ctx context.Context, _ *dlock.Lease) error {
		source, err := iofs.New(files, "migrations")
		if err != nil {
			return err
		}
		m, err := migrate.NewWithSourceInstance("iofs", source, databaseURL)
		if err != nil {
			return err
		}
		defer m.Close()
		return up(ctx, m)
	})
}

// up runs one migration after the other, and begins no further one once ctx has ended:
// because the lock is lost, or because the program is to stop.
func up(ctx context.Context, m *migrate.Migrate) error {
	defer context.AfterFunc(ctx, func() { m.GracefulStop <- true })()
	err := m.Up()
	if errors.Is(err, migrate.ErrNoChange) {
		return nil
	}
	if err == nil {
		err = context.Cause(ctx) // Up returns nil when it was told to stop
	}
	return err
}
