// Command goose migrates a Postgres database before it serves. Any number of copies may
// start at once: one of them migrates, the others wait for it.
package main

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that sql.Open knows as pgx
	"github.com/pressly/goose/v3"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/pg" // or the backend that the URL of the lock names
)

//go:embed migrations/*.sql
var embedded embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		log.Fatal(err)
	}
	if err := migrate(ctx, os.Getenv("DATABASE_URL"), files); err != nil {
		log.Fatal(err) // do not serve on a database that may be half migrated
	}
	log.Println("the database is up to date")
}

// migrate runs the migrations that the database has not had. The lock is on the server
// that is migrated.
func migrate(ctx context.Context, url string, files fs.FS) error {
	locks, err := dlock.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer locks.Close(context.WithoutCancel(ctx))
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	migrations, err := goose.NewProvider(goose.DialectPostgres, db, files)
	if err != nil {
		return err
	}

	lock := locks.Mutex("migrations", dlock.WithMaxWait(5*time.Minute)) // longer than migrations take
	return dlock.Do(ctx, lock, func(ctx context.Context, _ *dlock.Lease) error {
		done, err := migrations.Up(ctx) // ctx ends if the lock is lost
		for _, m := range done {
			log.Println(m)
		}
		return err
	})
}
