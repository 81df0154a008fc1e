package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
	"github.com/jackc/pgx/v5"
)

// presentToken is the token that the present moment begins with.
func presentToken() uint64 {
	now := time.Now()
	return uint64(now.Unix()-946684800)*uint64(secondSize) + uint64(now.Nanosecond())*uint64(secondSize)/1e9
}

func lastOf(t testing.TB, c *pgx.Conn, sequence string) (n int64) {
	t.Helper()
	must(t, c.QueryRow(testContext(t), "SELECT last_value FROM "+sequence).Scan(&n))
	return n
}

// tokenOf takes the lock of m, and returns the token.
func tokenOf(t testing.TB, m *dlock.Mutex) uint64 {
	t.Helper()
	lease := lock(t, m)
	unlock(t, lease)
	return lease.Token()
}

// TestTokensGrowAcrossCrashes has a server lose what it has not on the disk: by
// itself, because one of its processes was killed, and when it is started again. Its
// sequence is not logged, or is, as an older server makes it.
func TestTokensGrowAcrossCrashes(t *testing.T) {
	t.Parallel()
	for _, version := range []int64{unloggedVersion, unloggedVersion - 1} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			s := server.Start(t, testServer)
			q := newSequences("public")
			execute(t, admin(t, s.Addr()), q.create(version))
			m := newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t))
			var last uint64
			grows := func() bool {
				t.Helper()
				lease, err := m.Lock(testContext(t))
				if err != nil {
					return false // the server is coming back
				}
				if lease.Token() <= last {
					t.Errorf("token %#x after %#x", lease.Token(), last)
				}
				last = lease.Token()
				_ = lease.Unlock(testContext(t)) // it may be lost
				return true
			}
			for range 40 {
				eventually(t, "a token", grows)
			}
			victim := admin(t, s.Addr())
			must(t, syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL))
			eventually(t, "a token after the crash of a process", grows)
			must(t, s.Kill())
			must(t, s.Restart(true))
			eventually(t, "a token after the crash of the server", grows)
			must(t, s.Stop())
			must(t, s.Restart(true))
			eventually(t, "a token after a stop", grows)
		})
	}
}

// TestTokensGrowAcrossRestore has the sequences be what they were when somebody wrote
// a dump: the numbers drawn after that are drawn no second time.
func TestTokensGrowAcrossRestore(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	q := newSequences("public")
	for _, version := range []int64{unloggedVersion, unloggedVersion - 1} {
		execute(t, a, "DROP SEQUENCE IF EXISTS dlock_fence, dlock_fence_floor; "+q.create(version))
		p := newPeer(t, s.Addr(), Options{}, ttl)
		tokenOf(t, p.Mutex(nameOf(t)))
		dump := lastOf(t, a, "dlock_fence")
		for range 100 {
			tokenOf(t, p.Mutex(nameOf(t)))
		}
		last := tokenOf(t, p.Mutex(nameOf(t)))
		must(t, p.Close(testContext(t)))
		for presentToken() < uint64(dump+raiseStep) { // a dump takes longer than that
			time.Sleep(time.Millisecond)
		}
		execute(t, a, "DROP SEQUENCE dlock_fence; "+q.create(version), fmt.Sprintf("SELECT setval('dlock_fence', %d)", dump))
		if got := tokenOf(t, newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t))); got <= last {
			t.Errorf("token %#x after %#x", got, last)
		}
	}
}

// TestTokensGrowAcrossRestoreBeneathClients has a dump of two minutes ago restored while
// clients are connected: one that has drawn before, and one that has connected since.
func TestTokensGrowAcrossRestoreBeneathClients(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	names := newSequences("public")
	for _, version := range []int64{unloggedVersion, unloggedVersion - 1} {
		execute(t, a, "DROP SEQUENCE IF EXISTS dlock_fence, dlock_fence_floor; "+names.create(version))
		p, q := newPeer(t, s.Addr(), Options{}, limit), newPeer(t, s.Addr(), Options{}, limit)
		tokenOf(t, p.Mutex(nameOf(t)))
		last := tokenOf(t, q.Mutex(nameOf(t)))
		dump := presentToken() - uint64(2*behindStep)
		execute(t, a, fmt.Sprintf("SELECT setval(seqrelid, %d) FROM pg_sequence WHERE seqrelid::regclass::text LIKE 'dlock%%'", dump))
		for range 2 {
			for _, peer := range []*peer{p, q} {
				got := tokenOf(t, peer.Mutex(nameOf(t)))
				if got <= last {
					t.Errorf("token %#x after %#x", got, last)
				}
				last = got
			}
		}
		if last < presentToken()-uint64(behindStep) {
			t.Errorf("the last token is %#x, far behind the clock", last)
		}
	}
}

// TestSequenceRemoved has somebody remove the sequences beneath a client that holds a lock:
// the client makes them again, and keeps the lock.
func TestSequenceRemoved(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	p := newPeer(t, s.Addr(), Options{}, limit)
	held := lock(t, p.Mutex(nameOf(t, "held")))
	last := tokenOf(t, p.Mutex(nameOf(t)))
	execute(t, admin(t, s.Addr()), "DROP SEQUENCE dlock_fence, dlock_fence_floor")
	if _, err := p.Mutex(nameOf(t)).TryLock(testContext(t)); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("a try without a sequence: %v", err)
	}
	lease, err := p.Mutex(nameOf(t)).TryLock(testContext(t))
	must(t, err)
	if lease.Token() <= last {
		t.Errorf("token %#x after %#x", lease.Token(), last)
	}
	unlock(t, lease)
	unlock(t, held)
}

// TestTokensFollowTheClock bounds the first number of each connection from both sides.
func TestTokensFollowTheClock(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	for range 3 {
		before := presentToken()
		got := tokenOf(t, newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t)))
		if got < before || got > presentToken()+uint64(raiseStep+numberStep) {
			t.Errorf("token %#x at a clock of %#x", got, before)
		}
	}
}

// TestTokensGrowWhenTheClockDoesNot has a crash and a clock that was set back: the
// server has given out numbers up to some time from now.
func TestTokensGrowWhenTheClockDoesNot(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	for _, ahead := range []uint64{30, 3600} {
		works(t, newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t)))
		hence := presentToken() + ahead*uint64(secondSize)
		execute(t, admin(t, s.Addr()), fmt.Sprintf("SELECT setval('dlock_fence', %d)", hence))
		last := tokenOf(t, newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t)))
		if last <= hence {
			t.Errorf("token %#x after %#x", last, hence)
		}
		must(t, s.Kill())
		must(t, s.Restart(true))
		if got := tokenOf(t, newPeer(t, s.Addr(), Options{}, ttl).Mutex(nameOf(t))); got <= last {
			t.Errorf("token %#x after %#x and a crash", got, last)
		}
	}
}

// TestRaisedWhileOthersDraw has sessions begin while others draw numbers, where the sequence is ahead of the clock,
// as after a crash, and where it is not. No number is drawn twice.
func TestRaisedWhileOthersDraw(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	newPeer(t, s.Addr(), Options{}, ttl)
	a := admin(t, s.Addr())
	names := newSequences("public")
	_, numbers := raise(floor)
	for _, ahead := range []int64{600, 0} {
		execute(t, a, fmt.Sprintf("SELECT setval('dlock_fence', %d)", int64(presentToken())+ahead*secondSize))
		const sessions, times = 3, 3000
		drawn := make([][]int64, sessions)
		var all sync.WaitGroup
		for i := range drawn {
			draws, moves := admin(t, s.Addr()), admin(t, s.Addr())
			all.Go(func() {
				for range times {
					var n int64
					if err := draws.QueryRow(testContext(t), "SELECT nextval('dlock_fence')").Scan(&n); err != nil {
						t.Error(err)
						return
					}
					drawn[i] = append(drawn[i], n)
				}
			})
			all.Go(func() {
				for range times {
					if _, err := moves.Exec(testContext(t), names.in("SELECT "+numbers)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		seen := make(map[int64]bool)
		for _, n := range slices.Concat(drawn...) {
			if seen[n] {
				t.Fatalf("%d s ahead of the clock: %d was drawn twice", ahead, n)
			}
			seen[n] = true
		}
	}
}

// TestRaisedSlowly has others draw numbers from one moment on while a session is about to move the sequence to that, as
// on a busy server. No number is drawn twice.
func TestRaisedSlowly(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	newPeer(t, s.Addr(), Options{}, ttl)
	a, names := admin(t, s.Addr()), newSequences("public")
	_, numbers := raise(floor)
	slowly := "SELECT setval(NUMBERS, CLOCK), " + strings.Replace(numbers, ") END", " + length(pg_sleep(0.1)::text)) END", 1)
	for uint64(lastOf(t, a, "dlock_fence")) >= presentToken() {
		time.Sleep(time.Millisecond)
	}
	moved := make(chan error, 1)
	moves := admin(t, s.Addr())
	go func() {
		_, err := moves.Exec(testContext(t), names.in(slowly))
		moved <- err
	}()
	for last, over := int64(0), false; !over; {
		select {
		case err := <-moved:
			must(t, err)
			over = true
		default:
		}
		var n int64
		must(t, a.QueryRow(testContext(t), "SELECT nextval('dlock_fence')").Scan(&n))
		if n <= last {
			t.Fatalf("%d was drawn after %d", n, last)
		}
		last = n
	}
}

// TestFloorIsSeldomWritten connects many times within a minute.
func TestFloorIsSeldomWritten(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	newPeer(t, s.Addr(), Options{}, ttl)
	was := lastOf(t, a, "dlock_fence_floor")
	for range 5 {
		newPeer(t, s.Addr(), Options{}, ttl)
	}
	if n := lastOf(t, a, "dlock_fence_floor"); n != was {
		t.Errorf("the floor was moved from %d to %d", was, n)
	}
}

// TestSequenceOfAnother has a role make the sequences that nobody had made, who could
// start them anew.
func TestSequenceOfAnother(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	a := admin(t, s.Addr())
	execute(t, a, "CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN; GRANT CREATE ON SCHEMA public TO PUBLIC")
	cfg := configOf(t, s.Addr())
	cfg.User = "stranger"
	stranger, err := pgx.ConnectConfig(testContext(t), cfg)
	must(t, err)
	defer stranger.Close(testContext(t))
	q := newSequences("public")
	execute(t, stranger, q.create(unloggedVersion)+"; GRANT USAGE, UPDATE ON SEQUENCE dlock_fence, dlock_fence_floor TO PUBLIC")
	for user, params := range map[string]string{"app": "", "postgres": ""} {
		if _, err := open1(t, "postgres://"+user+"@"+s.Addr()+"/postgres?sslmode=disable"+params); !errors.Is(err, dlock.ErrConflict) {
			t.Errorf("%s: a sequence of a stranger: %v", user, err)
		}
	}
	for _, reason := range []string{"", "GRANT stranger TO app"} {
		url := "postgres://app@" + s.Addr() + "/postgres?sslmode=disable"
		if reason == "" {
			url += "&owner=stranger"
		} else {
			execute(t, a, reason)
		}
		c, err := open1(t, url)
		must(t, err)
		works(t, c.Mutex(nameOf(t)))
	}
}

// TestSequenceRemovedBeneathAll has the sequence be removed when there are as many
// connections as there may be. The one that has locks is used no more, and counts until they
// are given back.
func TestSequenceRemovedBeneathAll(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second // this process may be without a processor for a while
	s := server.Start(t, testServer)
	p, q := newPeer(t, s.Addr(), Options{MaxConns: 2}, ttl), newPeer(t, s.Addr(), Options{}, time.Minute)
	busy, held := lock(t, q.Mutex(nameOf(t, "busy"))), lock(t, p.Mutex(nameOf(t, "held")))
	ctx, cancel := context.WithCancel(testContext(t))
	left := make(chan error, 1)
	go func() {
		_, err := p.Mutex(nameOf(t, "busy")).Lock(ctx)
		left <- err
	}()
	eventually(t, "two connections", func() bool { return p.backend.connections() == 2 })
	execute(t, admin(t, s.Addr()), "DROP SEQUENCE dlock_fence, dlock_fence_floor")
	for i := range 5 {
		if _, err := p.Mutex(nameOf(t, "other")).TryLock(testContext(t)); !errors.Is(err, dlock.ErrUnavailable) {
			t.Errorf("try %d: %v", i, err)
		}
		if n := p.backend.connections(); n > 2 {
			t.Fatalf("%d connections, of 2 that there may be", n)
		}
	}
	unlock(t, held)
	unlock(t, receive(t, "the lock", locking(t, p.Mutex(nameOf(t, "other")))))
	if n := p.backend.connections(); n > 2 {
		t.Errorf("%d connections, of 2 that there may be", n)
	}
	cancel()
	if err := receive(t, "the end of the wait", left); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("the wait: %v", err)
	}
	unlock(t, busy)
}

// TestTokenThatCannotBeHad has somebody else hold the sequence when a wait gets its lock, for
// longer than a slice. That is no word of the server that the lock is held.
func TestTokenThatCannotBeHad(t *testing.T) {
	const key = 4713
	a, other := admin(t, shared.Addr()), admin(t, shared.Addr())
	execute(t, a, "DROP SCHEMA IF EXISTS blocked CASCADE", "CREATE SCHEMA blocked")
	p := newPeer(t, shared.Addr(), Options{Schema: "blocked", Slice: 100 * time.Millisecond}, 10*time.Second)
	s, err := p.backend.takeForWait(testContext(t), time.Minute)
	must(t, err)
	wait := func() error {
		c, err := s.do(testContext(t), lockExclusive, key)
		if codeOf(err) != lockNotAvailable {
			t.Fatalf("a wait of a slice: %v", err)
		}
		return (&attempt{backend: p.backend}).failed(s, c)
	}
	execute(t, a, "BEGIN", "ALTER SEQUENCE blocked.dlock_fence OWNED BY NONE")
	if err := wait(); errors.Is(err, dlock.ErrHeld) || !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("a lock that is free: %v", err)
	}
	execute(t, a, "ROLLBACK")
	if n := number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1", key); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	execute(t, other, "SELECT pg_advisory_lock(4713)")
	if err := wait(); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("a lock that is held: %v", err)
	}
	execute(t, a, "DROP SCHEMA blocked CASCADE")
}
