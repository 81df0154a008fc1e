package pg

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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
