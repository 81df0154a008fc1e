package pg

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
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

// TestFailureOfACommit has a transaction fail when all its statements have been run, and
// the one behind it succeed: every call of the first one failed.
func TestFailureOfACommit(t *testing.T) {
	failed := errors.New("disk full")
	one, two, after := &call{op: tryExclusive, arg: 1}, &call{op: ping, arg: 2}, &call{op: setTTL, arg: 3}
	s := &session{queue: []*call{one, after, two}}
	s.group()
	if n := len(s.inFlight); n != 3 || s.inFlight[0].ends || !s.inFlight[1].ends || !s.inFlight[2].ends {
		t.Fatalf("%d statements: %+v", n, s.inFlight)
	}
	s.at, s.failed = 2, failed
	if done := s.answered(nil, 1); len(done) != 2 || len(s.resend) != 0 {
		t.Errorf("%d calls answered, %d to be sent again", len(done), len(s.resend))
	}
	if one.err != failed || two.err != failed || after.err != nil {
		t.Errorf("calls of a transaction that failed: %v, %v; behind it: %v", one.err, two.err, after.err)
	}
}

// TestFailedGroupIsTakenApart has a group fail: each of its calls is a transaction, which
// first gives back what the group may have taken.
func TestFailedGroupIsTakenApart(t *testing.T) {
	calls := []*call{{op: tryExclusive, arg: 1}, {op: tryExclusive, arg: 2}, {op: unlockShared, arg: 3}, {op: unlockShared, arg: 4}}
	s := &session{backend: new(Backend), queue: calls}
	s.group()
	s.at, s.failed = 0, errors.New("no room")
	if done := s.answered(nil, 1); len(done) != 0 {
		t.Errorf("%d calls answered", len(done))
	}
	s.first = 2
	s.finish()
	s.group()
	var ops []op
	var ends []bool
	for _, st := range s.inFlight {
		ops, ends = append(ops, st.op), append(ends, st.ends)
	}
	if want := []op{unlockShared, dropExclusive, tryExclusive, dropExclusive, tryExclusive}; !slices.Equal(ops, want) {
		t.Errorf("statements %v, want %v", ops, want)
	}
	if want := []bool{true, false, true, false, true}; !slices.Equal(ends, want) {
		t.Errorf("ends %v, want %v", ends, want)
	}
}
