package medallion

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	_ "github.com/dlock-go/dlock/backend/pg"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/server"
)

// A short name is a pair, of which no two names have the same. A number is itself, and of a
// longer name the key is the first eight bytes of a hash, the last of them first.
func TestKey(t *testing.T) {
	for name, want := range map[string][]any{
		"":                        {int32(0x7fffffff), int32(-1)},
		strings.Repeat("\x00", 9): {int32(0), int32(0)},
		strings.Repeat("\x7f", 9): {int32(-1), int32(-2)},
		"a":                       {int32(-0x3d000001), int32(-1)}, // 1100001 0 1...
		"ffffffffffffffff":        {int64(-1)},
		"The quick brown fox jumps over the lazy dog": {int64(-0x3d7d285391e2bd1)},
	} {
		if got := Key(name); !slices.Equal(got, want) {
			t.Errorf("%q: %x, want %x", name, got, want)
		}
	}
}

func before(ctx context.Context, url, name string, work func(context.Context) error) error {
	return UnderAdvisoryLock(ctx, url, Key(name), work)
}

// terminate ends the connections that hold an advisory lock for which the condition is true.
func terminate(ctx context.Context, url, condition string, key []any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	number := key[0]
	if len(key) == 2 {
		number = int64(key[0].(int32))<<32 | int64(uint32(key[1].(int32)))
	}
	done, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND (classid::bigint << 32 | objid::bigint) `+condition+` $1`, number)
	if err == nil && done.RowsAffected() == 0 {
		err = errors.New("not held")
	}
	return err
}

func versions(t *testing.T, url string) changeover.Versions {
	t.Helper()
	v := changeover.Versions{
		New:     changeover.Open(t, url),
		TakeOld: func(ctx context.Context, name string) error { return terminate(ctx, url, "=", Key(name)) },
		TakeNew: func(ctx context.Context, name string) error { return terminate(ctx, url, "<>", Key(name)) },
	}
	for i := range 2 {
		client := changeover.Open(t, url)
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, url, before, Both, After)
	}
	return v
}

func start(t *testing.T) (url string) {
	t.Helper()
	return "postgres://postgres@" + server.Start(t, server.Postgres{}).Addr() + "/postgres"
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	if err := versions(t, start(t)).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Work that does not look is told at its end.
func TestLossUnawares(t *testing.T) {
	t.Parallel()
	v := versions(t, start(t))
	if err := changeover.Unaware(t.Context(), v.Both[0], v.TakeOld); err != nil {
		t.Error(err)
	}
}
