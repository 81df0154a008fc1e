package pg

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

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
	t.Parallel()
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

// TestFunctionsBeforeTheServersOwn has a role define functions that are the server's own
// but for the schema, where that schema is searched before the server's.
func TestFunctionsBeforeTheServersOwn(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a, evil := admin(t, s.Addr()), neighbour(t, s.Addr())
	execute(t, a, "CREATE SCHEMA everybodys", "GRANT ALL ON SCHEMA everybodys TO PUBLIC")
	for _, head := range []string{
		"pg_backend_pid() RETURNS int", "pg_is_in_recovery() RETURNS bool", "current_setting(text) RETURNS text",
		"set_config(text, text, bool) RETURNS text",
	} {
		execute(t, evil, "CREATE FUNCTION everybodys."+head+
			" LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'runs with the rights of %', current_user; END $$")
	}
	execute(t, a, "ALTER DATABASE postgres SET search_path = everybodys, pg_catalog")
	for _, target := range []string{"any", "primary", "read-write", "prefer-standby"} {
		c, err := open1(t, "postgres://postgres@"+s.Addr()+"/postgres?sslmode=disable&target_session_attrs="+target)
		must(t, err)
		works(t, c.Mutex(nameOf(t)))
		_, err = c.Inspect(testContext(t), nameOf(t))
		must(t, err)
	}
}

// TestLongMessage has a server announce a message for which there is no room.
func TestLongMessage(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(append([]byte{'R', 0x3f, 0xff, 0xff, 0xff}, make([]byte, 4<<20)...))
		}
	}()
	before := allocated()
	_, err = New(testContext(t), configOf(t, listener.Addr().String()), nil)
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if more := allocated() - before; more > 256<<20 { // other tests run beside this one
		t.Errorf("%d MiB for a message", more>>20)
	}
}

// allocated is how much memory has ever been taken.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHostilePeer has a role that may connect and nothing else send 200,000 notifications
// to clients that listen, half of them with the key of a lock that they wait for. Nothing
// of it is believed, and it costs them neither goroutines nor memory.
func TestHostilePeer(t *testing.T) {
	const messages = 200_000
	s := server.Start(t, testServer)
	holder := newPeer(t, s.Addr(), Options{}, 30*time.Second)
	waiter := newPeer(t, s.Addr(), Options{MaxConns: 2}, 30*time.Second)
	evil, a := neighbour(t, s.Addr()), admin(t, s.Addr())
	for _, forbidden := range []string{
		"SELECT nextval('dlock_fence')", "SELECT setval('dlock_fence', 1)", "ALTER SEQUENCE dlock_fence RESTART", "DROP SEQUENCE dlock_fence",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' AND datname IS NOT NULL", "CREATE TABLE public.x ()",
	} {
		if _, err := evil.Exec(testContext(t), forbidden); err == nil {
			t.Errorf("done: %s", forbidden)
		}
	}
	m := nameOf(t)
	lease := lock(t, holder.Mutex(m))
	waiting := locking(t, waiter.Mutex(m))
	eventually(t, "it listens", func() bool {
		waiter.backend.mu.Lock()
		defer waiter.backend.mu.Unlock()
		return len(waiter.backend.listeners) == 1
	})
	requests, memory, goroutines, peak := waiter.proxy.Stats().Requests, heap(), runtime.NumGoroutine(), 0
	key := holder.backend.key(m)
	sign, digits := "", fmt.Sprint(key)
	if key < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := range messages / 1000 {
		// What has the same text within a transaction is sent once.
		_, err := evil.Exec(testContext(t), fmt.Sprintf(`SELECT pg_notify('dlock_wake', CASE n %% 2
			WHEN 0 THEN '%[1]s' || repeat('0', n) || '%[2]s' ELSE ((%[3]d::int8 * 1000 + n) * 7919)::text END)
			FROM generate_series(1, 1000) n`, sign, digits, i))
		must(t, err)
		peak = max(peak, runtime.NumGoroutine())
	}
	eventually(t, "the last one is heard", func() bool {
		return number(t, a, "SELECT count(*) FROM pg_stat_activity WHERE pg_notification_queue_usage() > 0") == 0
	})
	requests, memory = waiter.proxy.Stats().Requests-requests, heap()-memory
	t.Logf("%d goroutines, %d at most; %d requests; %d KiB", goroutines, peak, requests, memory>>10)
	if peak > goroutines+100 || memory > 64<<20 {
		t.Errorf("%d goroutines, %d before; %d KiB more", peak, goroutines, memory>>10)
	}
	select {
	case l := <-waiting:
		t.Fatalf("believed: %v", l)
	default:
	}
	must(t, lease.Err())
	unlock(t, lease)
	next := receive(t, "the lock", waiting)
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	unlock(t, next)
}
