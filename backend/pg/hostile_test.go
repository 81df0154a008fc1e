package pg

import (
	"fmt"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
	"github.com/jackc/pgx/v5"
)

// neighbour is a login on a server that has no rights but those that it is given here.
func neighbour(t testing.TB, addr string, rights ...string) *pgx.Conn {
	t.Helper()
	execute(t, admin(t, addr), append([]string{"CREATE ROLE neighbour LOGIN"}, rights...)...)
	cfg := configOf(t, addr)
	cfg.User = "neighbour"
	c, err := pgx.ConnectConfig(testContext(t), cfg)
	must(t, err)
	t.Cleanup(func() { _ = c.Close(testContext(t)) })
	return c
}

// TestForeignFunctions has a role that may create things in a schema that is searched,
// as every role may before Postgres 15, define operators and functions that fit the
// arguments of our statements better than the server's own: they would run with the
// rights of whoever locks.
func TestForeignFunctions(t *testing.T) {
	s := server.Start(t, testServer)
	evil := neighbour(t, s.Addr(), "GRANT CREATE ON SCHEMA public TO neighbour")
	for _, f := range []struct{ head, result, use string }{
		{"minus(numeric, int4)", "numeric", "CREATE OPERATOR public.- (LEFTARG = numeric, RIGHTARG = int4, FUNCTION = public.minus)"},
		{"times(numeric, int8)", "numeric", "CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = int8, FUNCTION = public.times)"},
		{"same(oid, regclass)", "bool", "CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same)"},
		{"unnest(int8[])", "SETOF int8", "SELECT"},
	} {
		execute(t, evil, "CREATE FUNCTION public."+f.head+" RETURNS "+f.result+
			" LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'runs with the rights of %', current_user; END $$", f.use)
	}
	p := newPeer(t, s.Addr(), Options{}, ttl)
	works(t, p.Mutex(nameOf(t)))
	var holds []*backend.Hold
	for i := range 100 {
		h, err := p.backend.Acquire(testContext(t), requestFor(nameOf(t, fmt.Sprint(i))))
		must(t, err)
		holds = append(holds, h)
	}
	p.backend.ReleaseAll(testContext(t), holds, func(_ *backend.Hold, err error) { must(t, err) })
}
