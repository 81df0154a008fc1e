package pg

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock"
)

func newSession(t testing.TB) (*peer, *session) {
	t.Helper()
	p := newPeer(t, shared.Addr(), Options{}, ttl)
	s, err := p.backend.take(testContext(t), time.Minute)
	must(t, err)
	return p, s
}

// TestGroups has many goroutines run the same statements for the first time.
func TestGroups(t *testing.T) {
	_, s := newSession(t)
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			for _, o := range []op{ping, probe, tryExclusive, unlockExclusive, enlist, delist} {
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

// TestFailureInGroup has one statement of an exchange fail: the others take
// effect all the same, and the change of the lease stays.
func TestFailureInGroup(t *testing.T) {
	p, s := newSession(t)
	for range 20 {
		ttl := 30 * time.Second
		p.backend.mu.Lock()
		s.retune(ttl)
		p.backend.mu.Unlock()
		bad, good := newCall(setTTL, -2), newCall(tryExclusive, 1<<41)
		s.start(newCall(ping, int64(s.pid)))
		s.start(bad)
		s.start(good)
		<-bad.done
		<-good.done
		if _, ok := errors.AsType[*pgconn.PgError](bad.err); !ok {
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
	execute(t, a, "SELECT setval('worn.dlock_token', (1::int8 << 52) - 1)") // the last there is
	if _, err := p.Mutex(nameOf(t)).TryLock(testContext(t)); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("locked without a token: %v", err)
	}
	eventually(t, "nothing left", func() bool { return inLocks(t, a, p.backend, nameOf(t), true) == 0 })
}
