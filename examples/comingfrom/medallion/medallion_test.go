package medallion

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	_ "github.com/dlock-go/dlock/backend/pg"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/server"
)

// The key is made of the first eight bytes of a hash, the last of them first.
func TestKey(t *testing.T) {
	if got := uint64(Key("The quick brown fox jumps over the lazy dog")); got != 0xfc282d7ac6e1d42f {
		t.Errorf("%x", got)
	}
}

func before(ctx context.Context, url, name string, work func(context.Context) error) error {
	return UnderAdvisoryLock(ctx, url, Key(name), work)
}

// terminate ends the connections that hold an advisory lock for which the condition is true.
func terminate(ctx context.Context, url, condition string, key int64) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	done, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND (classid::bigint << 32 | objid::bigint) `+condition+` $1`, key)
	if err == nil && done.RowsAffected() == 0 {
		err = errors.New("not held")
	}
	return err
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	url := "postgres://postgres@" + server.Start(t, server.Postgres{}).Addr() + "/postgres"
	v := changeover.Versions{
		New:     changeover.Open(t, url),
		TakeOld: func(ctx context.Context, name string) error { return terminate(ctx, url, "=", Key(name)) },
		TakeNew: func(ctx context.Context, name string) error { return terminate(ctx, url, "<>", Key(name)) },
	}
	for i := range 2 {
		client := changeover.Open(t, url)
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, url, before, Both, After)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}
