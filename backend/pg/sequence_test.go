package pg

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
	"github.com/jackc/pgx/v5/pgconn"
)

// numberOf is the number of the sequence in a token.
func numberOf(token uint64) int64 { return int64(token & maxNumber) }

// usable fails the test if the sequence may give out that token twice.
func usable(t testing.TB, token uint64) {
	t.Helper()
	if isSpent(numberOf(token)) || numberOf(token) < rangeStep {
		t.Errorf("token %#x is of no range that was reserved", token)
	}
}

// TestTokensGrowAcrossCrashes has a server start anew what it does not log: by
// itself, because one of its processes was killed, and when it is started again.
func TestTokensGrowAcrossCrashes(t *testing.T) {
	s := server.Start(t, testServer)
	m := newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t))
	var last uint64
	// goesOn takes the lock, and reports whether the token is of the next range.
	goesOn := func() bool {
		t.Helper()
		lease, err := m.Lock(testContext(t))
		if err != nil {
			return false // the server is coming back
		}
		token := lease.Token()
		usable(t, token)
		if token <= last {
			t.Errorf("token %#x after %#x", token, last)
		}
		next := numberOf(token)/rangeStep != numberOf(last)/rangeStep
		last = token
		_ = lease.Unlock(testContext(t)) // it may be lost
		return next
	}
	if !goesOn() || goesOn() {
		t.Fatalf("the first tokens are not of one range: %#x", last)
	}
	victim := admin(t, s.Addr())
	must(t, syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL))
	eventually(t, "another range after the crash of a process", goesOn)

	must(t, s.Kill())
	must(t, s.Restart(true))
	eventually(t, "another range after the crash of the server", goesOn)

	must(t, s.Stop())
	must(t, s.Restart(true))
	works(t, m)
	if goesOn() {
		t.Error("another range although the server has kept all")
	}
}

// TestEndOfARange has many clients take locks as the numbers of a range run out.
func TestEndOfARange(t *testing.T) {
	const clients, rounds = 4, 20
	s := server.Start(t, testServer)
	p, a := peers(t, s.Addr(), clients), admin(t, s.Addr())
	var mu sync.Mutex
	last := make(map[string]uint64)
	for range 3 {
		lease := lock(t, p[0].Mutex("first"))
		end := numberOf(lease.Token())/rangeStep*rangeStep + rangeSize
		number(t, a, "SELECT setval('dlock_token', $1)::int8", end-10*numberStep)
		unlock(t, lease)
		var all sync.WaitGroup
		for i, one := range p {
			all.Go(func() {
				for n := range rounds {
					name := fmt.Sprint("lock ", (i+n)%2)
					lease := lock(t, one.Mutex(name))
					usable(t, lease.Token())
					mu.Lock()
					if lease.Token() <= last[name] {
						t.Errorf("token %#x after %#x", lease.Token(), last[name])
					}
					last[name] = lease.Token()
					mu.Unlock()
					unlock(t, lease)
				}
			})
		}
		all.Wait()
		if numberOf(last["lock 0"]) < end {
			t.Errorf("token %#x is of the range that ended at %#x", last["lock 0"], end)
		}
	}
}

// TestRangeRefused has a role that may not go on to the next range. It gets no
// lock, and leaves none.
func TestRangeRefused(t *testing.T) {
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	works(t, newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t)))
	execute(t, a, "CREATE ROLE plain LOGIN; GRANT USAGE, UPDATE ON SEQUENCE dlock_token, dlock_token_range TO plain")
	c, err := open1(t, "postgres://plain@"+s.Addr()+"/postgres?sslmode=disable")
	must(t, err)
	works(t, c.Mutex(nameOf(t)))
	execute(t, a, fmt.Sprintf("REVOKE UPDATE ON SEQUENCE dlock_token FROM plain; SELECT setval('dlock_token', %d)", rangeSize))
	if _, err := c.Mutex(nameOf(t)).Lock(testContext(t)); !errors.Is(err, dlock.ErrAuth) {
		t.Errorf("a lock without a token: %v", err)
	}
	if n := number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// TestLoggedSequence uses what an older server makes: every number of it counts.
func TestLoggedSequence(t *testing.T) {
	a := admin(t, shared.Addr())
	q := newSequences("older")
	execute(t, a,
		"DROP SCHEMA IF EXISTS older CASCADE; CREATE SCHEMA older", q.create(unloggedVersion-1),
		fmt.Sprintf("SELECT setval('older.dlock_token', %d)", rangeSize-2*numberStep),
	)
	m := newPeer(t, shared.Addr(), Options{Schema: "older"}, ttl).Mutex(nameOf(t))
	for i := range int64(3) {
		lease := lock(t, m)
		if got, want := numberOf(lease.Token()), rangeSize+(i-1)*numberStep; got != want {
			t.Errorf("number %#x, want %#x", got, want)
		}
		unlock(t, lease)
	}
}

// TestRangesInAnyOrder has the slower one of two that have each reserved a range
// come second.
func TestRangesInAnyOrder(t *testing.T) {
	ctx := testContext(t)
	s := server.Start(t, testServer)
	b := newPeer(t, s.Addr(), Options{}, ttl).backend
	x, err := b.shared(ctx, line{ttl, holding})
	must(t, err)
	defer b.leave(x)
	ask := func(o op, arg int64) int64 {
		t.Helper()
		c, err := x.do(ctx, o, arg)
		must(t, err)
		return c.value
	}
	first, second := ask(reserve, 0), ask(reserve, 0)
	if n := number(t, admin(t, s.Addr()), "SELECT log_cnt FROM dlock_token_range"); n != 0 {
		t.Errorf("the next %d ranges could be drawn without a record", n)
	}
	ask(advance, second)
	ask(advance, first)
	if n := ask(draw, 0); second-first != rangeStep || n <= second {
		t.Errorf("ranges at %#x and %#x, then the number %#x", first, second, n)
	}
}

// TestRangeWaitsForTheDisk has a role whose commits do not.
func TestRangeWaitsForTheDisk(t *testing.T) {
	ctx := testContext(t)
	cfg := configOf(t, shared.Addr())
	cfg.RuntimeParams["synchronous_commit"] = "off"
	b, err := newBackend(cfg, nil)
	must(t, err)
	conn, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	must(t, err)
	defer conn.Close(ctx)
	must(t, b.settings(ctx, conn, ttl))
	values, err := queryInts(ctx, conn, "SELECT (current_setting('synchronous_commit') = 'local')::int")
	must(t, err)
	if values[0] != 1 {
		t.Error("a range may be used before it is on the disk")
	}
}

// TestRangeIsDrawnAlone queues the request for a range among others: if one of
// those failed in the same transaction, the range would not be on the disk.
func TestRangeIsDrawnAlone(t *testing.T) {
	s := &session{queue: []*call{{op: tryExclusive}, {op: unlockExclusive}, {op: reserve}, {op: ping}}}
	var got []int
	for len(s.queue) > 0 {
		s.group()
		got = append(got, len(s.flight))
		s.flight = nil
	}
	if want := []int{2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("statements of each transaction: %v, want %v", got, want)
	}
}
