package pg

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// complains checks that Examine complains of these subjects in these words, and of no
// other, and that it says something of each.
func complains(t *testing.T, e interface {
	Examine(ctx context.Context, report func(backend.Finding)) error
}, want map[string]string) {
	t.Helper()
	subjects, bad := make(map[string]bool), make(map[string]string)
	must(t, e.Examine(testContext(t), func(f backend.Finding) {
		subjects[f.Subject] = true
		if f.Level > backend.OK {
			bad[f.Subject] = fmt.Sprintf("%v: %s", f.Level, f.Text)
		}
		if (f.Level > backend.OK) != (f.Advice != "") {
			t.Errorf("advice is for what is not as it should be: %v", f)
		}
	}))
	if len(subjects) != 5 {
		t.Errorf("%d subjects: %v", len(subjects), subjects)
	}
	for subject, text := range want {
		if bad[subject] == "" || !strings.Contains(bad[subject], text) {
			t.Errorf("%s: %q, want %q", subject, bad[subject], text)
		}
	}
	for subject, text := range bad {
		if _, ok := want[subject]; !ok {
			t.Errorf("%s: %q, want nothing", subject, text)
		}
	}
}

// TestExamine looks at a server that is well, and finds what hurts on others. What Open
// refuses already is in the tests of that: a standby, sequences that are missing, a pooler
// that nobody has vouched for.
func TestExamine(t *testing.T) {
	t.Parallel()
	complains(t, newPeer(t, shared.Addr(), Options{}, time.Minute), nil)
	complains(t, newPeer(t, shared.Addr(), Options{MaxConns: 1000}, time.Minute), map[string]string{"connections": "may need 1000"})

	s := server.Start(t, server.Postgres{Settings: []string{"max_locks_per_transaction=10", "max_connections=20", "idle_session_timeout=1s"}})
	p := newPeer(t, s.Addr(), Options{MaxConns: 5}, time.Minute)
	complains(t, p, nil) // each connection has a timeout of its own
	a := admin(t, s.Addr())
	execute(t, a, "SET idle_session_timeout = 0", "SELECT pg_advisory_lock(g) FROM generate_series(1, 120) g")
	complains(t, p, map[string]string{"lock table": "warning: 12"})
	execute(t, a, "SELECT pg_advisory_unlock_all()")
	for range 10 {
		execute(t, admin(t, s.Addr()), "SET idle_session_timeout = 0")
	}
	complains(t, p, map[string]string{"connections": "of 17 are in use, and this client may need 5"})

	if f := checkVersion(130010); f.Level != backend.Warning {
		t.Errorf("%+v", f)
	}
}

// TestExaminePooler looks through poolers: one that works by session, and one that is
// said to do so and works by transaction.
func TestExaminePooler(t *testing.T) {
	url := func(mode string) string {
		return "postgres://postgres@" + pgBouncer(t, mode) + "/postgres?sslmode=disable&pooler=session"
	}
	c, err := open1(t, url("session"))
	must(t, err)
	complains(t, c, map[string]string{"pooler": "warning: pooler=session is set"})
	c, err = open1(t, url("transaction"))
	must(t, err)
	complains(t, c, map[string]string{"pooler": "fault: one process", "locks": "fault: "})
}

// Who inspects only needs no right to the sequences, and makes none: a superuser who has no
// reason to trust the role that owns them, and a role that may do nothing, see who holds a
// lock, and are told why they would get none.
func TestInspectOnly(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	execute(t, a, "CREATE ROLE app LOGIN", "CREATE ROLE guest LOGIN", "GRANT CREATE ON SCHEMA public TO app")
	inspect := func(user string) *dlock.Client {
		t.Helper()
		c, err := dlock.Open(testContext(t), "postgres://"+user+"@"+s.Addr()+"/postgres?sslmode=disable", &dlock.Options{InspectOnly: true})
		must(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		must(t, c.Ping(testContext(t)))
		if c.Info().Version == "" {
			t.Errorf("%s is not told the version", user)
		}
		return c
	}
	examine := func(c *dlock.Client) (locks dlock.Finding) {
		t.Helper()
		must(t, c.Examine(testContext(t), func(f dlock.Finding) {
			switch {
			case f.Subject == "locks":
				locks = f
			case f.Level > backend.OK:
				t.Errorf("%+v", f)
			}
		}))
		return locks
	}
	expect := func(what string, f dlock.Finding, level backend.Level, text string) {
		t.Helper()
		if f.Level != level || !strings.Contains(f.Text, text) {
			t.Errorf("%s: %+v, want %v with %q", what, f, level, text)
		}
	}
	expect("new database, may create", examine(inspect("app")), backend.OK, "no program has taken a lock here yet")
	expect("new database, may not", examine(inspect("guest")), backend.Fault, "have an administrator run CREATE")
	expect("new database, superuser", examine(inspect("postgres")), backend.OK, "no program has taken a lock here yet")
	var sequences int
	must(t, a.QueryRow(testContext(t), "SELECT count(*) FROM pg_sequence").Scan(&sequences))
	if sequences != 0 {
		t.Errorf("%d sequences were made", sequences)
	}

	c, err := open1(t, "postgres://app@"+s.Addr()+"/postgres?sslmode=disable")
	must(t, err)
	held := lock(t, c.Mutex("job"))
	for _, user := range []string{"app", "guest", "postgres"} {
		shown, err := inspect(user).Inspect(testContext(t), "job")
		must(t, err)
		if len(shown.Holders) != 1 {
			t.Errorf("%s sees %+v", user, shown)
		}
	}
	expect("owner", examine(inspect("app")), backend.OK, "a lock was taken")
	expect("superuser", examine(inspect("postgres")), backend.Fault, "has no reason to trust")
	expect("guest", examine(inspect("guest")), backend.Fault, "has no reason to trust")
	execute(t, a, "ALTER SEQUENCE dlock_fence OWNER TO postgres", "ALTER SEQUENCE dlock_fence_floor OWNER TO postgres")
	expect("guest of the superuser", examine(inspect("guest")), backend.Fault, "GRANT USAGE, UPDATE")
	unlock(t, held)
}
