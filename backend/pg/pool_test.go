package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
	"github.com/jackc/pgx/v5"
)

// TestManyTTLs takes locks with many leases: one after the other, close to one another
// and far apart, and all at once.
func TestManyTTLs(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	for i := range 100 {
		lease, err := p.Mutex(nameOf(t), dlock.WithTTL(20*time.Second+time.Duration(i)*137*time.Millisecond)).TryLock(testContext(t))
		must(t, err)
		unlock(t, lease)
	}
	if n := p.backend.connections(); n > 2 {
		t.Errorf("%d connections for locks with many leases, one after the other", n)
	}
	var leases []*dlock.Lease
	for i := range 100 {
		lease, err := p.Mutex(nameOf(t, fmt.Sprint(i)), dlock.WithTTL(time.Duration(i+1)*time.Second)).TryLock(testContext(t))
		must(t, err)
		leases = append(leases, lease)
	}
	if n := p.backend.connections(); n > 16 {
		t.Errorf("%d connections for locks with many leases at once", n)
	}
	for _, l := range leases {
		must(t, l.Err())
		unlock(t, l)
	}
}

// TestLeases bounds what the rounding of a TTL costs.
func TestLeases(t *testing.T) {
	different := make(map[time.Duration]bool)
	for ttl := minTTL; ttl < time.Hour; ttl += (ttl/1000 + time.Millisecond).Truncate(time.Millisecond) {
		lease := leaseOf(ttl)
		if lease < ttl || lease > ttl+ttl/4+time.Millisecond || leaseOf(lease) != lease {
			t.Errorf("a lease of %v for a TTL of %v", lease, ttl)
		}
		different[lease] = true
	}
	if n := len(different); n > 64 {
		t.Errorf("%d leases up to an hour", n)
	}
}

// TestMaxConns has more locks be waited for, and held after that, than there may be
// connections.
func TestMaxConns(t *testing.T) {
	const n, most = 12, 5
	holder := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	p := newPeer(t, shared.Addr(), Options{MaxConns: most}, 10*time.Second)
	var held []*dlock.Lease
	var next []<-chan *dlock.Lease
	var over atomic.Int64
	for i := range n {
		held = append(held, lock(t, holder.Mutex(nameOf(t, fmt.Sprint(i)))))
		next = append(next, locking(t, p.Mutex(nameOf(t, fmt.Sprint(i)))))
	}
	for i := range n {
		if i%2 == 0 {
			over.Add(int64(max(0, p.backend.connections()-most)))
		}
		unlock(t, held[i])
	}
	var mine []*dlock.Lease
	for i := range n {
		mine = append(mine, receive(t, "the lock", next[i]))
		over.Add(int64(max(0, p.backend.connections()-most)))
	}
	if over.Load() > 0 {
		t.Errorf("more than %d connections", most)
	}
	for _, l := range mine {
		unlock(t, l)
	}
}

// TestMaxConnsAtOnce has locks with many leases be asked for before there is any
// connection, as after a cut.
func TestMaxConnsAtOnce(t *testing.T) {
	const n, most = 8, 4
	p := newPeer(t, shared.Addr(), Options{MaxConns: most}, 10*time.Second)
	for _, s := range p.backend.alive() {
		s.kill(errSilent)
	}
	eventually(t, "no connection", func() bool { return p.backend.connections() == 0 })
	p.proxy.Delay(faultnet.ToClient, 50*time.Millisecond, 0)
	var leases []<-chan *dlock.Lease
	for i := range n {
		leases = append(leases, locking(t, p.Mutex(nameOf(t, fmt.Sprint(i)), dlock.WithTTL(time.Duration(i+1)*10*time.Second))))
	}
	for _, l := range leases {
		defer unlock(t, receive(t, "the lock", l))
	}
	if n := p.backend.connections(); n > most {
		t.Errorf("%d connections, of %d that there may be", n, most)
	}
}

// TestConnectionIsMadeSoon counts in round trips of 100 ms: TCP, the login, what the
// server is, and all that is to be prepared. A busy machine adds to some tries, so that
// the fastest one counts.
func TestConnectionIsMadeSoon(t *testing.T) {
	const trip, most = 100 * time.Millisecond, 450 * time.Millisecond
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	p.proxy.Delay(faultnet.ToClient, trip, 0)
	connect := func() time.Duration {
		p.backend.mu.Lock()
		p.backend.conns++
		p.backend.mu.Unlock()
		began := time.Now()
		s, err := p.backend.connect(testContext(t), 10*time.Second)
		must(t, err)
		defer p.backend.stopUsing(s)
		return time.Since(began)
	}
	fastest := connect()
	for range 20 {
		if fastest > most {
			fastest = min(fastest, connect())
		}
	}
	if fastest > most {
		t.Errorf("a connection took %v, with a round trip of %v", fastest, trip)
	}
}

// TestEndedIdleSession has the server end the connection that a try is about to use.
func TestEndedIdleSession(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	a := admin(t, shared.Addr())
	for range 30 {
		works(t, p.Mutex(nameOf(t)))
		for _, s := range p.backend.alive() {
			execute(t, a, fmt.Sprintf("SELECT pg_terminate_backend(%d)", s.pid))
		}
		lease, err := p.Mutex(nameOf(t)).TryLock(testContext(t))
		must(t, err)
		unlock(t, lease)
	}
}

// TestEndedIdleSessions has the server end all connections that a try may come to use,
// one after the other: those that have waited and the one that holds.
func TestEndedIdleSessions(t *testing.T) {
	const n = 3
	q, p := newPeer(t, shared.Addr(), Options{}, 10*time.Second), newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	a := admin(t, shared.Addr())
	for range 3 {
		var held []*dlock.Lease
		var calls []<-chan *dlock.Lease
		for i := range n {
			name := nameOf(t, fmt.Sprint(i))
			held = append(held, lock(t, q.Mutex(name)))
			calls = append(calls, queue(t, shared.Addr(), p, name))
		}
		for i := range n {
			unlock(t, held[i])
			unlock(t, receive(t, "the lock", calls[i]))
		}
		works(t, p.Mutex(nameOf(t)))
		var pids []int32
		for _, s := range p.backend.alive() {
			pids = append(pids, int32(s.pid))
		}
		if len(pids) <= n {
			t.Fatalf("%d connections", len(pids))
		}
		number(t, a, "SELECT count(pg_terminate_backend(pid)) FROM unnest($1::int4[]) pid", pids)
		lease, err := p.Mutex(nameOf(t)).TryLock(testContext(t))
		must(t, err)
		unlock(t, lease)
	}
}

// TestFullTableOfMany has very many goroutines find the lock table full. Each failure
// costs its own statement, not those of all the others again.
func TestFullTableOfMany(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := server.Start(t, server.Postgres{Settings: []string{"max_locks_per_transaction=10", "max_connections=15"}})
	p := newPeer(t, s.Addr(), Options{MaxLocks: 1 << 20}, 30*time.Second)
	var all sync.WaitGroup
	before := p.proxy.Stats().Requests
	for i := range n {
		all.Go(func() {
			_, err := p.Mutex(fmt.Sprint(i)).TryLock(testContext(t))
			if err != nil && !errors.Is(err, ErrLockTable) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if sent := p.proxy.Stats().Requests - before; sent > 6*n {
		t.Errorf("%d transactions for %d requests", sent, n)
	}
}

// fill takes locks until the server has no room for more.
func fill(t testing.TB, a *pgx.Conn) {
	t.Helper()
	for i := 0; ; i++ {
		if _, err := a.Exec(testContext(t), "SELECT pg_advisory_lock($1::int8)", i); err != nil {
			return
		}
	}
}

// TestDowngradeInAFullTable needs no room: the client keeps all its locks.
func TestDowngradeInAFullTable(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Postgres{Settings: []string{"max_locks_per_transaction=10", "max_connections=15"}})
	p := newPeer(t, s.Addr(), Options{MaxLocks: 1 << 20}, 30*time.Second)
	other := lock(t, p.Mutex("other"))
	lease, err := p.RWMutex("this").Lock(testContext(t))
	must(t, err)
	fill(t, admin(t, s.Addr()))
	must(t, lease.Downgrade(testContext(t)))
	must(t, other.Err())
	unlock(t, lease)
	unlock(t, other)
}

// TestIgnoredLocks has a server say that it has given a lock, and have none.
func TestIgnoredLocks(t *testing.T) {
	execute(t, admin(t, shared.Addr()), "DROP DATABASE IF EXISTS hollow", "CREATE DATABASE hollow")
	cfg := configOf(t, shared.Addr())
	cfg.Database = "hollow"
	a, err := pgx.ConnectConfig(testContext(t), cfg)
	must(t, err)
	execute(t, a, "CREATE OR REPLACE FUNCTION pg_catalog.pg_try_advisory_lock_shared(int8) RETURNS bool LANGUAGE sql AS 'SELECT true'")
	must(t, a.Close(testContext(t)))
	if b, err := New(testContext(t), cfg, nil); !errors.Is(err, dlock.ErrUnsupported) {
		t.Errorf("a server that keeps no locks: %v, %v", b, err)
	}
}

// TestUnixSocket reaches a server by the file in its directory, with options for it.
func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "dlock-socket-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	s := server.Start(t, server.Postgres{Settings: []string{"unix_socket_directories=" + dir}})
	_, port, _ := strings.Cut(s.Addr(), ":")
	for _, url := range []string{
		"postgres:///postgres?host=" + dir + "&port=" + port + "&options=-c%20work_mem%3D1MB",
	} {
		t.Setenv("PGUSER", "postgres")
		c, err := open1(t, url)
		must(t, err)
		works(t, c.Mutex(nameOf(t)))
	}
}

// TestBeforeConnect has a user that is right for the moment only.
func TestBeforeConnect(t *testing.T) {
	var calls atomic.Int64
	cfg := configOf(t, shared.Addr())
	cfg.User = "nobody"
	b, err := New(testContext(t), cfg, &Options{BeforeConnect: func(_ context.Context, c *pgx.ConnConfig) error {
		calls.Add(1)
		c.User = "postgres"
		return nil
	}})
	must(t, err)
	defer b.Close(testContext(t))
	s, err := b.useShared(testContext(t), forListening)
	must(t, err)
	b.stopUsing(s)
	if calls.Load() != 2 {
		t.Errorf("asked %d times for two connections", calls.Load())
	}
	refused := errors.New("no token")
	_, err = New(testContext(t), cfg, &Options{BeforeConnect: func(context.Context, *pgx.ConnConfig) error { return refused }})
	if !errors.Is(err, dlock.ErrAuth) || !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}

// TestReadersOfManyLeases has readers with more leases than there may be connections,
// while a writer waits: none of them gets in because its session has the lock already.
func TestReadersOfManyLeases(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{MaxConns: 2}, 10*time.Second)
	first, err := p.RWMutex(nameOf(t)).RLock(testContext(t))
	must(t, err)
	w := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	next := locking(t, w.RWMutex(nameOf(t)))
	a := admin(t, shared.Addr())
	eventually(t, "queued", func() bool { return inLocks(t, a, p.backend, nameOf(t), false) == 1 })
	for _, ttl := range []time.Duration{time.Minute, time.Second, 10 * time.Second} {
		if _, err := p.RWMutex(nameOf(t), dlock.WithTTL(ttl)).TryRLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("a reader with a TTL of %v before a writer who waits: %v", ttl, err)
		}
	}
	if n := p.backend.connections(); n > 2 {
		t.Errorf("%d connections, of 2 that there may be", n)
	}
	unlock(t, first)
	unlock(t, receive(t, "the lock", next))
}
