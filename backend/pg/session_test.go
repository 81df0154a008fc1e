package pg

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

func newSession(t testing.TB) (*peer, *session) {
	t.Helper()
	p := newPeer(t, shared.Addr(), Options{}, ttl)
	s, err := p.backend.takeForWait(testContext(t), time.Minute)
	must(t, err)
	return p, s
}

// TestGroups has many goroutines run the same statements for the first time.
func TestGroups(t *testing.T) {
	_, s := newSession(t)
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			for _, o := range []op{ping, probe, tryExclusive, unlockExclusive, addListener, removeListener} {
				arg := int64(i) + 1<<40
				if o == ping {
					arg = int64(s.pid)
				}
				c, err := s.do(testContext(t), o, arg)
				if err != nil || c.value == 0 {
					t.Errorf("op %d: %v, %v", o, c, err)
				}
			}
		})
	}
	all.Wait()
}

// TestDisputeInAGroup has two tries go out together, and somebody has a claim to one of the
// locks: whoever has got that must look who comes first, and has no token yet.
func TestDisputeInAGroup(t *testing.T) {
	const claimed, free = 1 << 42, 1<<42 + 1
	p, s := newSession(t)
	other, err := p.backend.takeForWait(testContext(t), time.Minute)
	must(t, err)
	if ticket, err := other.run(claim, claimed, 100); err != nil || ticket == 0 {
		t.Fatalf("a claim: %v", err)
	}
	one, two := newCall(tryExclusive, claimed), newCall(tryExclusive, free)
	s.start(one, two)
	<-one.done
	<-two.done
	if one.err != nil || one.value != disputed {
		t.Errorf("a lock with a claim to it: %d, %v", one.value, one.err)
	}
	if two.err != nil || two.value <= 0 {
		t.Errorf("a lock beside it: %d, %v", two.value, two.err)
	}
}

// TestFailureInGroup has one statement of an exchange fail: the others take
// effect all the same, and the change of the lease stays.
func TestFailureInGroup(t *testing.T) {
	_, s := newSession(t)
	for range 20 {
		ttl := 30 * time.Second
		s.setLease(ttl)
		bad, good := newCall(setTTL, -2), newCall(tryExclusive, 1<<41)
		s.start(newCall(ping, int64(s.pid)))
		s.start(bad)
		s.start(good)
		<-bad.done
		<-good.done
		if !isServers(bad.err) {
			t.Fatalf("a lease below zero: %v", bad.err)
		}
		if good.err != nil || good.value == 0 {
			t.Fatalf("a lock beside a failure: %v", good.err)
		}
		if c, err := s.do(testContext(t), unlockExclusive, 1<<41); err != nil || c.value != 1 {
			t.Fatalf("unlock: %v", err)
		}
		s.mu.Lock()
		s.ttl = time.Minute
		s.mu.Unlock()
	}
}

// TestFailureBehindTheGrant has the statement that takes a lock fail when it
// has got it already, as one does that is cancelled at that moment. The server
// does not take the lock back by itself.
func TestFailureBehindTheGrant(t *testing.T) {
	a := admin(t, shared.Addr())
	execute(t, a, "DROP SCHEMA IF EXISTS worn CASCADE", "CREATE SCHEMA worn")
	p := newPeer(t, shared.Addr(), Options{Schema: "worn"}, 10*limit)
	execute(t, a, "SELECT setval('worn.dlock_fence', 9223372036854775807)") // the last there is
	if _, err := p.Mutex(nameOf(t)).TryLock(testContext(t)); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("locked without a token: %v", err)
	}
	eventually(t, "nothing left", func() bool { return inLocks(t, a, p.backend, nameOf(t), true) == 0 })
}

// TestFailureOfACommit has a transaction fail when all rows of its statement have come, and
// the one behind it succeed: every call of the first one failed.
func TestFailureOfACommit(t *testing.T) {
	failed := &pgconn.PgError{Message: "disk full"}
	one, two, after := &call{op: tryExclusive, arg: 1}, &call{op: unlockShared, arg: 2}, &call{op: ping, arg: 3}
	s := &session{queue: []*call{one, after, two}}
	s.group()
	if n := len(s.inFlight); n != 2 || len(s.inFlight[0].calls) != 2 {
		t.Fatalf("%d statements: %+v", n, s.inFlight)
	}
	row := func() { must(t, s.row(&pgproto3.DataRow{Values: [][]byte{{7: 1}}})) }
	for range 3 {
		row()
	}
	must(t, s.fail(failed))
	if calls, ok := s.answer(); !ok || len(calls) != 2 {
		t.Errorf("%d calls answered", len(calls))
	}
	if _, ok := s.answer(); ok {
		t.Error("a statement without a row is answered")
	}
	row()
	if _, ok := s.answer(); !ok {
		t.Error("a statement with its row is not answered")
	}
	if one.err != failed || two.err != failed || !one.grouped || !two.grouped || after.err != nil || after.grouped {
		t.Errorf("calls of a transaction that failed: %v, %v; behind it: %v", one.err, two.err, after.err)
	}
}

// TestFailureOfAGroup has a statement of several tries and unlocks fail when it has done
// half of its work. Each gets what it asked for all the same, and nothing stays.
func TestFailureOfAGroup(t *testing.T) {
	const n = 8
	a := admin(t, shared.Addr())
	_, err := a.Exec(testContext(t), `DROP SCHEMA IF EXISTS failing CASCADE; CREATE SCHEMA failing; CREATE SEQUENCE failing.calls;
		CREATE FUNCTION failing.once() RETURNS int8 LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('failing.calls') = 2 THEN RAISE EXCEPTION USING ERRCODE = '53200'; END IF;
			RETURN 0;
		END $$`)
	must(t, err)
	defer func(was string) { expressions[tryShared] = was }(expressions[tryShared])
	expressions[tryShared] = "(" + expressions[tryShared] + ") + failing.once()"
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second) // it tries once
	name := func(kind string, i int) string { return nameOf(t, kind, fmt.Sprint(i)) }
	var old []*dlock.Lease
	for i := range n {
		old = append(old, lock(t, p.Mutex(name("old", i))))
	}
	s := sessionOf(p.backend, name("old", 0))
	execute(t, a, "SELECT pg_advisory_lock(4714)")
	s.start(newCall(lockShared, 4714)) // what comes meanwhile goes out together
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { unlock(t, old[i]) })
		all.Go(func() { unlock(t, lock(t, p.Mutex(name("new", i)))) })
		all.Go(func() { unlock(t, lock(t, p.RWMutex(name("read", i)).RLocker())) })
	}
	eventually(t, "a queue", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queue) == 3*n
	})
	execute(t, a, "SELECT pg_advisory_unlock(4714)")
	all.Wait()
	if got := number(t, a, "SELECT last_value FROM failing.calls"); got != 2+n {
		t.Errorf("%d tries of readers, want one at first, one that fails and %d", got, n)
	}
	if _, err := s.run(dropShared, 4714, 0); err != nil {
		t.Error(err)
	}
	if left := number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1", int32(s.pid)); left != 0 {
		t.Errorf("%d locks left", left)
	}
}
