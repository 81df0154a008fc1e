// Command fencing-postgres ships order 42 under a lock, and has Postgres refuse what a
// holder writes that has lost the lock and does not know it yet.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that sql.Open knows as pgx

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // or the backend that DLOCK_URL names
)

const createTable = `
	CREATE TABLE IF NOT EXISTS orders (
		id    bigint PRIMARY KEY,
		state text NOT NULL,
		fence bigint NOT NULL -- the greatest token that has written this row
	)`

var errStale = errors.New("a later holder of the lock has written")

func main() {
	ctx := context.Background()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, createTable); err != nil {
		log.Fatal(err)
	}
	err = dlock.Do(ctx, locks.Mutex("orders/42"), func(ctx context.Context, lease *dlock.Lease) error {
		return save(ctx, db, 42, "shipped", lease.Token())
	})
	if err != nil {
		log.Fatal(err)
	}
}

// save writes the state of an order, or fails with errStale. The comparison and the
// write are one statement.
func save(ctx context.Context, db *sql.DB, order int64, state string, token uint64) error {
	result, err := db.ExecContext(ctx, `
		INSERT INTO orders (id, state, fence) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence = excluded.fence
		WHERE orders.fence <= excluded.fence`,
		order, state, int64(token))
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	return errStale
}
