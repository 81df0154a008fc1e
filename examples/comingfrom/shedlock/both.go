package shedlock

import (
	"context"

	"github.com/dlock-go/dlock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Both runs the job beside Java programs that take the row of that name.
func Both(ctx context.Context, client *dlock.Client, db *pgxpool.Pool, job Job, host string, work func(context.Context) error) error {
	return dlock.TryDo(ctx, job.mutex(client), func(ctx context.Context, _ *dlock.Lease) error {
		return UnderRow(ctx, db, job, host, work)
	})
}
