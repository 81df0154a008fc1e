// Package shedlock is a Go program that shares jobs with Java programs on ShedLock.
package shedlock

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/dlock-go/dlock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The times are in UTC, as with usingDbTime() and in a JVM whose time zone is UTC.
const (
	take = `
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
VALUES ($1, timezone('utc', clock_timestamp()) + $2, timezone('utc', clock_timestamp()), $3)
ON CONFLICT (name) DO UPDATE
SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by
WHERE shedlock.lock_until <= timezone('utc', clock_timestamp())`

	free = `
UPDATE shedlock SET lock_until = greatest(locked_at + $2, timezone('utc', clock_timestamp()))
WHERE name = $1 AND locked_by = $3 AND lock_until > timezone('utc', clock_timestamp())`
)

var errLate = errors.New("the row was anybody's before the job ended")

// UnderRow runs the job while it has the row of that name. It is dlock.ErrHeld if
// somebody else has it, and another error if the job took longer than AtMost.
func UnderRow(ctx context.Context, db *pgxpool.Pool, job Job, host string, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, job.AtMost) // the row is anybody's then
	defer cancel()
	owner := host + " " + rand.Text() // a late run must not free the row of the next one here
	taken, err := db.Exec(ctx, take, job.Name, job.AtMost, owner)
	if err != nil {
		return err
	}
	if taken.RowsAffected() == 0 {
		return dlock.ErrHeld
	}
	err = work(ctx)
	freed, freeErr := db.Exec(context.WithoutCancel(ctx), free, job.Name, job.AtLeast, owner)
	if freeErr == nil && freed.RowsAffected() == 0 {
		freeErr = errLate
	}
	return errors.Join(err, freeErr)
}
