package shedlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/pg"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/server"
)

// table is ShedLock's.
const table = `
CREATE TABLE shedlock (
	name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL,
	locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)`

func start(t *testing.T) (url string) {
	t.Helper()
	url = "postgres://postgres@" + server.Start(t, server.Postgres{}).Addr() + "/postgres"
	if _, err := connect(t, url).Exec(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	return url
}

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// job returns one that may run again at once.
func job(name string) Job {
	return Job{Name: name, AtMost: time.Minute, AtLeast: 5 * time.Millisecond}
}

// patient makes a program of jobs that are skipped while another runs them.
func patient(run func(context.Context, Job, func(context.Context) error) error) changeover.Program {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		for {
			err := run(ctx, job(name), work)
			if !errors.Is(err, dlock.ErrHeld) || ctx.Err() != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// versions are those of the page; the program before is in Go here.
func versions(t *testing.T, url string) changeover.Versions {
	admin := connect(t, url)
	v := changeover.Versions{
		New: changeover.Open(t, url),
		TakeNew: func(ctx context.Context, _ string) error {
			_, err := admin.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted`)
			return err
		},
	}
	for i := range 2 {
		client, db, host := changeover.Open(t, url), connect(t, url), fmt.Sprint("host-", i)
		v.Before[i] = patient(func(ctx context.Context, job Job, work func(context.Context) error) error {
			return UnderRow(ctx, db, job, host, work)
		})
		v.Both[i] = patient(func(ctx context.Context, job Job, work func(context.Context) error) error {
			return Both(ctx, client, db, job, host, work)
		})
		v.After[i] = patient(func(ctx context.Context, job Job, work func(context.Context) error) error {
			return After(ctx, client, job, work)
		})
	}
	return v
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	if err := versions(t, start(t)).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A job that runs for longer than it may is told, with either lock.
func TestAtMost(t *testing.T) {
	t.Parallel()
	url := start(t)
	client, db := changeover.Open(t, url), connect(t, url)
	job := Job{Name: "long", AtMost: 500 * time.Millisecond, AtLeast: time.Millisecond}
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := UnderRow(t.Context(), db, job, "host", wait); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := After(t.Context(), client, job, wait); !errors.Is(err, dlock.ErrLost) {
		t.Error(err)
	}
}

// Work that does not look is told at its end, also if nobody else has taken the row.
func TestLossUnawares(t *testing.T) {
	t.Parallel()
	url := start(t)
	v, admin := versions(t, url), connect(t, url)
	if err := changeover.Unaware(t.Context(), v.Both[0], func(ctx context.Context, name string) error {
		_, err := admin.Exec(ctx, `UPDATE shedlock SET lock_until = locked_at WHERE name = $1`, name)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A job without a least time may run again at once.
func TestNoAtLeast(t *testing.T) {
	t.Parallel()
	url := start(t)
	client, db := changeover.Open(t, url), connect(t, url)
	for range 2 {
		ran := false
		err := Both(t.Context(), client, db, Job{Name: "short", AtMost: time.Hour}, "host", func(context.Context) error {
			ran = true
			return nil
		})
		if err != nil || !ran {
			t.Errorf("ran: %t, %v", ran, err)
		}
	}
}

// A run that goes on after its time does not free the row of the next one on its host.
func TestLateRunFreesNobody(t *testing.T) {
	t.Parallel()
	db := connect(t, start(t))
	short := Job{Name: "late", AtMost: 500 * time.Millisecond, AtLeast: time.Millisecond}
	long := Job{Name: "late", AtMost: time.Hour, AtLeast: time.Millisecond}
	nothing := func(context.Context) error { return nil }
	next := make(chan error, 1)
	running, end := make(chan struct{}), make(chan struct{})
	err := UnderRow(t.Context(), db, short, "host", func(context.Context) error {
		go func() {
			next <- patient(func(ctx context.Context, _ Job, work func(context.Context) error) error {
				return UnderRow(ctx, db, long, "host", work)
			})(t.Context(), "late", func(context.Context) error {
				close(running)
				<-end
				return nil
			})
		}()
		select {
		case <-running:
			return nil
		case err := <-next:
			return err
		}
	})
	if !errors.Is(err, errLate) {
		t.Fatal(err)
	}
	if err := UnderRow(t.Context(), db, long, "another", nothing); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("another host beside the run that has the row: %v", err)
	}
	close(end)
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// A job that was short cannot be run again before its time, with either lock.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	url := start(t)
	client, db, other := changeover.Open(t, url), connect(t, url), changeover.Open(t, url)
	job := Job{Name: "short", AtMost: time.Hour, AtLeast: time.Minute}
	run := func(context.Context) error { return nil }
	if err := UnderRow(t.Context(), db, job, "host", run); err != nil {
		t.Fatal(err)
	}
	if err := UnderRow(t.Context(), db, job, "another", run); !errors.Is(err, dlock.ErrHeld) {
		t.Error(err)
	}
	if err := After(t.Context(), client, job, run); err != nil {
		t.Fatal(err)
	}
	if err := After(t.Context(), other, job, run); !errors.Is(err, dlock.ErrHeld) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_ = client.Close(ctx) // does not wait for the minute
}
