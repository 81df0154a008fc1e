package pg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

func TestCap(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{MaxLocks: 3}, ttl)
	var leases []*dlock.Lease
	for i := range 3 {
		leases = append(leases, lock(t, p.Mutex(nameOf(t, fmt.Sprint(i)))))
	}
	if _, err := p.Mutex(nameOf(t)).Lock(testContext(t)); !errors.Is(err, ErrLockTable) {
		t.Errorf("one lock too many: %v", err)
	}
	unlock(t, leases[0])
	works(t, p.Mutex(nameOf(t)))
	for _, l := range leases[1:] {
		unlock(t, l)
	}
}

// TestLockTableFull fills the server's lock table. Those who ask at the same
// time as the one that is too many get what there is, and nothing stays.
func TestLockTableFull(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Postgres{Settings: []string{"max_locks_per_transaction=10", "max_connections=15"}})
	p := newPeer(t, s.Addr(), Options{MaxLocks: 1 << 20}, 10*time.Second)
	const workers, each = 16, 1000
	var mu sync.Mutex
	var leases []*dlock.Lease
	var all sync.WaitGroup
	full := 0
	for w := range workers {
		all.Go(func() {
			for i := range each {
				lease, err := p.Mutex(fmt.Sprint(w, "/", i)).TryLock(testContext(t))
				mu.Lock()
				if err == nil {
					leases = append(leases, lease)
				} else {
					full++
				}
				mu.Unlock()
				if err != nil {
					if !errors.Is(err, ErrLockTable) {
						t.Errorf("the table is full: %v", err)
					}
					return
				}
			}
		})
	}
	all.Wait()
	if full == 0 {
		t.Fatal("the table was never full")
	}
	for _, l := range leases {
		unlock(t, l)
	}
	a := admin(t, s.Addr())
	eventually(t, "nothing left", func() bool {
		return number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
	})
	works(t, p.Mutex(nameOf(t)))
}

// TestThousandsOnOneConnection counts the requests of holders while nobody waits, and while
// somebody does so for a lock that is none of theirs. Its server is its own.
func TestThousandsOnOneConnection(t *testing.T) {
	t.Parallel()
	const n, lease = 5000, 12 * time.Second
	s := server.Start(t, testServer)
	p := newPeer(t, s.Addr(), Options{}, lease)
	var leases []*dlock.Lease
	for i := range n {
		l, err := p.Mutex(nameOf(t, fmt.Sprint(i))).Lock(testContext(t))
		must(t, err)
		leases = append(leases, l)
	}
	if c := p.backend.connections(); c != 1 {
		t.Errorf("%d connections for %d locks", c, n)
	}
	before, start := p.proxy.Stats().Requests, time.Now()
	time.Sleep(lease)
	sent := p.proxy.Stats().Requests - before
	if most := int64(time.Since(start)/time.Second) + 1; sent == 0 || sent > most {
		t.Errorf("%d requests in %v, want one a second at most", sent, time.Since(start))
	}
	held := lock(t, newPeer(t, s.Addr(), Options{}, lease).Mutex(nameOf(t)))
	next := locking(t, newPeer(t, s.Addr(), Options{}, time.Second).Mutex(nameOf(t)))
	a := admin(t, s.Addr())
	eventually(t, "somebody says that it waits", func() bool {
		return number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "+isKey(keyOfAll)) > 0
	})
	before, start = p.proxy.Stats().Requests, time.Now()
	time.Sleep(lease * 3 / 4)
	sent = p.proxy.Stats().Requests - before
	t.Logf("%d requests in %v while somebody waits", sent, time.Since(start))
	// A session looks with each proof that it is alive, which is asked for when the last is a sixth of
	// the lease old.
	if most := (int64(time.Since(start)/(lease/6)) + 1) * (n/maxGroup + 4); sent == 0 || sent > most {
		t.Errorf("%d requests in %v while somebody waits, want %d at most", sent, time.Since(start), most)
	}
	for _, l := range leases {
		must(t, l.Err())
	}
	unlock(t, held)
	unlock(t, receive(t, "the lock", next))
	must(t, p.Close(testContext(t)))
}

func TestWaitersShareConnections(t *testing.T) {
	const n = 500
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	var waiting atomic.Int64
	q := newPeerOf(t, shared.Addr(), Options{}, dlock.Options{
		TTL:   10 * time.Second,
		Hooks: dlock.Hooks{Waiting: func(context.Context, dlock.WaitingEvent) { waiting.Add(1) }},
	})
	held := lock(t, p.Mutex(nameOf(t)))
	var all sync.WaitGroup
	most := 0
	for range n {
		all.Go(func() {
			lease := lock(t, q.Mutex(nameOf(t)))
			most = max(most, q.backend.connections())
			unlock(t, lease)
		})
	}
	a := admin(t, shared.Addr())
	eventually(t, "all queued", func() bool {
		return waiting.Load() == n && inLocks(t, a, p.backend, nameOf(t), false) == 1
	})
	if c := q.backend.connections(); c > 10 {
		t.Errorf("%d connections while %d wait", c, n)
	}
	unlock(t, held)
	all.Wait()
	if most > 10 {
		t.Errorf("%d connections for %d waiters", most, n)
	}
}

// TestUnlockInAFullTable has the lock table be full when an unlock looks whom to
// tell. The lock has been given back by then, and the session keeps its others.
func TestUnlockInAFullTable(t *testing.T) {
	a := admin(t, shared.Addr())
	_, err := a.Exec(testContext(t), `DROP SCHEMA IF EXISTS crowded CASCADE; CREATE SCHEMA crowded; CREATE SEQUENCE crowded.calls;
		CREATE FUNCTION crowded.fails() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('crowded.calls') = 1 THEN RAISE EXCEPTION USING ERRCODE = '53200'; END IF;
			RETURN true;
		END $$`)
	must(t, err)
	defer func(was string) { expressions[unlockExclusive] = was }(expressions[unlockExclusive])
	expressions[unlockExclusive] = "CASE WHEN NOT pg_advisory_unlock(K) THEN 0 WHEN crowded.fails() THEN 1 END::int8"

	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	kept, lease := lock(t, p.Mutex(nameOf(t, "kept"))), lock(t, p.Mutex(nameOf(t, "given back")))
	unlock(t, lease)
	unlock(t, kept)
	if n := number(t, a, "SELECT last_value FROM crowded.calls"); n != 2 {
		t.Errorf("%d looks for listeners", n)
	}
}

// TestUnlockFailsBeforeATry has an unlock of a reader fail when the lock has been given
// back, as in a full lock table, while another reader of the client is about to try. What
// is given back after the failure is nothing of the second reader's.
func TestUnlockFailsBeforeATry(t *testing.T) {
	const gate = 4712 // the first unlock waits for it
	defer func(least, most time.Duration) { leastPoll, mostPoll = least, most }(leastPoll, mostPoll)
	leastPoll, mostPoll = limit, limit // who listens tries when it is told to
	a, gatekeeper := admin(t, shared.Addr()), admin(t, shared.Addr())
	_, err := a.Exec(testContext(t), `DROP SCHEMA IF EXISTS gated CASCADE; CREATE SCHEMA gated; CREATE SEQUENCE gated.calls;
		CREATE FUNCTION gated.fails() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('gated.calls') = 1 THEN PERFORM pg_advisory_xact_lock(4712); RAISE EXCEPTION USING ERRCODE = '53200'; END IF;
			RETURN true;
		END $$`)
	must(t, err)
	defer func(was string) { expressions[unlockShared] = was }(expressions[unlockShared])
	expressions[unlockShared] = "CASE WHEN NOT pg_advisory_unlock_shared(K) THEN 0 WHEN gated.fails() THEN 1 END::int8"
	execute(t, gatekeeper, fmt.Sprintf("SELECT pg_advisory_lock(%d)", gate))

	q := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	p := newPeer(t, shared.Addr(), Options{MaxParked: 1}, 10*time.Second)
	name, b := nameOf(t), p.backend
	busy := lock(t, q.Mutex(nameOf(t, "busy")))
	inQueue := queue(t, shared.Addr(), p, nameOf(t, "busy"))
	first, err := p.RWMutex(name).RLock(testContext(t))
	must(t, err)
	writing, leave := context.WithCancel(testContext(t))
	left := make(chan error, 1)
	go func() {
		_, err := q.RWMutex(name).Lock(writing)
		left <- err
	}()
	eventually(t, "the writer waits", func() bool { return inLocks(t, a, q.backend, name, false) > 0 })
	next := make(chan *dlock.Lease, 1)
	go func() {
		lease, err := p.RWMutex(name).RLock(testContext(t))
		if err != nil {
			t.Error(err)
		}
		next <- lease
	}()
	is := func(what string, f func(l *localLock) bool) {
		t.Helper()
		eventually(t, what, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return f(b.locks[b.key(name)])
		})
	}
	is("the second reader has tried, listens, and has tried again", func(*localLock) bool {
		d := b.shared[forListening]
		if len(b.listeners) == 0 || d.session == nil {
			return false
		}
		return number(t, a, "SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE state = 'idle' AND pid = $1"+
			" AND query LIKE '%try_advisory_xact_lock_shared%' AND "+isKey(b.key(name)^listenMask), int32(d.session.pid)) == 1
	})
	leave()
	if err := receive(t, "the writer's end", left); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("the writer: %v", err)
	}
	unlocked := make(chan error, 1)
	go func() { unlocked <- first.Unlock(testContext(t)) }()
	is("the unlock is under way", (*localLock).isChanging)
	told := false
	is("the second reader comes", func(l *localLock) bool {
		comes := told && len(l.attempt.wake) == 0
		told = true
		l.notify()
		return comes
	})
	execute(t, gatekeeper, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", gate))
	must(t, receive(t, "the unlock", unlocked))
	second := receive(t, "the second reader's lock", next)
	if _, err := q.RWMutex(name).TryLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("a writer beside a reader: %v", err)
	}
	unlock(t, second)
	unlock(t, busy)
	unlock(t, receive(t, "the lock", inQueue))
}

// sessionOf is the session of the first grant of name.
func sessionOf(b *Backend, name string) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.locks[b.key(name)].grants[0].session
}

// TestTwoLocksInAFullTable has room for one more lock in the table while a statement takes
// two. What has failed leaves nothing: a claim that stayed would cost everybody who asks
// for the lock a look at who comes first, and a word that somebody waits would have its
// holders give way to nobody.
func TestTwoLocksInAFullTable(t *testing.T) {
	srv := server.Start(t, server.Postgres{Settings: []string{"max_locks_per_transaction=10", "max_connections=15"}})
	p := newPeer(t, srv.Addr(), Options{}, 10*time.Second)
	works(t, p.Mutex(nameOf(t)))
	a, others := admin(t, srv.Addr()), admin(t, srv.Addr())
	s, err := p.backend.useShared(testContext(t), leaseOf(10*time.Second))
	must(t, err)
	defer p.backend.stopUsing(s)
	if _, err := others.Exec(testContext(t), "SELECT pg_advisory_lock(g) FROM generate_series(1, 1000000) g"); codeOf(err) != outOfMemory {
		t.Fatalf("a full table: %v", err)
	}
	execute(t, others, "SELECT pg_advisory_unlock(1)")
	for _, o := range []op{addListener, removeListener} { // there is room for one
		_, err := s.run(o, p.backend.key(nameOf(t)), 0)
		must(t, err)
	}
	for _, o := range []op{want, claim} {
		if _, err := s.run(o, p.backend.key(nameOf(t)), 0); codeOf(err) != outOfMemory {
			t.Errorf("op %d with room for one lock: %v", o, err)
		}
		if n := number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1", int32(s.pid)); n != 0 {
			t.Errorf("op %d has failed and left %d locks", o, n)
		}
	}
}

// TestListenerIsKept waits in the lobby for longer than the server keeps a session
// that nobody renews.
func TestListenerIsKept(t *testing.T) {
	t.Parallel()
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	const ttl = 3 * time.Second // this process may be without a processor for a while
	q := newPeer(t, shared.Addr(), Options{MaxParked: 1}, ttl)
	var held []*dlock.Lease
	var calls []<-chan *dlock.Lease
	for i := range 2 {
		held = append(held, lock(t, p.Mutex(nameOf(t, fmt.Sprint(i)))))
		calls = append(calls, locking(t, q.Mutex(nameOf(t, fmt.Sprint(i)))))
	}
	listeners := make(map[*session]bool)
	listens := func() {
		for _, s := range q.backend.alive() {
			if s.listens {
				listeners[s] = true
			}
		}
	}
	eventually(t, "one in the lobby", func() bool { listens(); return len(listeners) > 0 })
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		listens()
	}
	if n := len(listeners); n != 1 {
		t.Errorf("%d sessions have listened", n)
	}
	for i := range held {
		unlock(t, held[i])
		unlock(t, receive(t, "the lock", calls[i]))
	}
}

// TestOneSlotManyLocks has one connection to wait on and many locks to wait for.
func TestOneSlotManyLocks(t *testing.T) {
	const n = 30
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	q := newPeer(t, shared.Addr(), Options{MaxParked: 1}, 10*time.Second)
	var held []*dlock.Lease
	var calls []<-chan *dlock.Lease
	for i := range n {
		name := nameOf(t, fmt.Sprint(i))
		held = append(held, lock(t, p.Mutex(name)))
		calls = append(calls, locking(t, q.Mutex(name)))
	}
	a := admin(t, shared.Addr())
	eventually(t, "all but one in the lobby", func() bool {
		q.backend.mu.Lock()
		defer q.backend.mu.Unlock()
		return len(q.backend.listeners) == n-1
	})
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	if _, err := q.Mutex(nameOf(t, "0")).Lock(ctx); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("cancelled: %v", err)
	}
	for i := range n {
		unlock(t, held[i])
		unlock(t, receive(t, "lock "+fmt.Sprint(i), calls[i]))
	}
	must(t, q.Close(testContext(t)))
	must(t, p.Close(testContext(t)))
	if left := number(t, a, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); left != 0 {
		t.Errorf("%d locks left", left)
	}
}
