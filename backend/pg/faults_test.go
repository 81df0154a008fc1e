package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const ttl = 2 * time.Second

func peers(t testing.TB, addr string, n int) []*peer {
	t.Helper()
	out := make([]*peer, n)
	for i := range out {
		out[i] = newPeer(t, addr, Options{}, ttl)
	}
	return out
}

// queue locks in the background and returns when the request is in the
// server's queue.
func queue(t testing.TB, addr string, p *peer, name string) <-chan *dlock.Lease {
	t.Helper()
	a := admin(t, addr)
	out := locking(t, p.Mutex(name))
	eventually(t, "queued", func() bool { return inLocks(t, a, p.backend, name, false) > 0 })
	return out
}

// TestReturnsSoonAfterItsContext calls a server that says nothing. Of the calls of each kind one at
// least returns soon after its context: the machine may be busy for the others.
func TestReturnsSoonAfterItsContext(t *testing.T) {
	t.Parallel()
	const soon, tries = 500 * time.Millisecond, 5
	p := newPeer(t, shared.Addr(), Options{}, time.Minute)
	works(t, p.Mutex(nameOf(t)))
	p.proxy.Blackhole(faultnet.BothWays)
	for op, take := range map[string]func(*dlock.RWMutex, context.Context) (*dlock.Lease, error){
		"lock": (*dlock.RWMutex).Lock, "trylock": (*dlock.RWMutex).TryLock, "rlock": (*dlock.RWMutex).RLock, "tryrlock": (*dlock.RWMutex).TryRLock,
	} {
		late := time.Hour
		for i := 0; i < tries && late > soon; i++ {
			ctx, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
			_, err := take(p.RWMutex(nameOf(t, op, strconv.Itoa(i))), ctx)
			end, _ := ctx.Deadline()
			late = min(late, time.Since(end))
			cancel()
			if !errors.Is(err, dlock.ErrUnavailable) {
				t.Errorf("%s: %v", op, err)
			}
		}
		if late > soon {
			t.Errorf("%s returns %v after its context", op, late)
		}
	}
}

func wantLost(t testing.TB, l *dlock.Lease) {
	t.Helper()
	receive(t, "the loss", l.Done())
	if !errors.Is(l.Err(), dlock.ErrLost) {
		t.Fatalf("ended with %v, want ErrLost", l.Err())
	}
}

// endSessions ends the connections whose entry for name is granted, or waits.
func endSessions(t testing.TB, addr string, p *peer, name string, granted bool) {
	t.Helper()
	key := uint64(p.backend.key(name))
	n := number(t, admin(t, addr), `SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'
		AND objsubid = 1 AND classid = $1::int8::oid AND objid = $2::int8::oid AND granted = $3`,
		int64(key>>32), int64(uint32(key)), granted)
	if n != 1 {
		t.Fatalf("%d sessions ended", n)
	}
}

// waitingPid is a process that waits for name, 0 if there is none.
func waitingPid(t testing.TB, a *pgx.Conn, b *Backend, name string) int {
	t.Helper()
	key := uint64(b.key(name))
	return number(t, a, `SELECT coalesce(max(pid), 0) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND classid = $1::int8::oid AND objid = $2::int8::oid AND NOT granted`, int64(key>>32), int64(uint32(key)))
}

func TestHolderTerminated(t *testing.T) {
	p := peers(t, shared.Addr(), 2)
	lease := lock(t, p[0].Mutex(nameOf(t)))
	other := lock(t, p[0].Mutex(nameOf(t, "/other")))
	next := queue(t, shared.Addr(), p[1], nameOf(t))
	endSessions(t, shared.Addr(), p[0], nameOf(t), true)
	wantLost(t, lease)
	wantLost(t, other)
	if codeOf(lease.Err()) != "57P01" {
		t.Errorf("the cause of the loss is %v, want the server's word", lease.Err())
	}
	unlock(t, receive(t, "the lock", next))
	works(t, p[0].Mutex(nameOf(t)))
}

func TestWaiterTerminated(t *testing.T) {
	p := peers(t, shared.Addr(), 2)
	lease := lock(t, p[0].Mutex(nameOf(t)))
	next := queue(t, shared.Addr(), p[1], nameOf(t))
	a := admin(t, shared.Addr())
	last := 0
	for range 3 {
		eventually(t, "queued again", func() bool {
			pid := waitingPid(t, a, p[1].backend, nameOf(t))
			again := pid != 0 && pid != last
			if again {
				last = pid
			}
			return again
		})
		execute(t, a, fmt.Sprintf("SELECT pg_terminate_backend(%d)", last))
	}
	unlock(t, lease)
	unlock(t, receive(t, "the lock", next))
}

func TestServerEnds(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	for name, end := range map[string]func() error{
		"fast":      s.Stop,
		"immediate": func() error { return syscall.Kill(s.Pid(), syscall.SIGQUIT) },
		"killed":    s.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			p := peers(t, s.Addr(), 2)
			lease := lock(t, p[0].Mutex(nameOf(t)))
			next := queue(t, s.Addr(), p[1], nameOf(t))
			must(t, end())
			wantLost(t, lease)
			must(t, s.Restart(true))
			later := receive(t, "the lock", next)
			if later.Token() <= lease.Token() {
				t.Errorf("token %d after %d", later.Token(), lease.Token())
			}
			unlock(t, later)
			works(t, p[0].Mutex(nameOf(t)))
		})
	}
}

func TestServerStopsForAWhile(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	p := peers(t, s.Addr(), 2)
	lease, err := p[0].Mutex(nameOf(t), dlock.WithTTL(20*time.Second)).Lock(testContext(t))
	must(t, err)
	short := lock(t, p[1].Mutex(nameOf(t, "/short")))
	must(t, s.Pause())
	wantLost(t, short) // its TTL is over, though nobody says so
	must(t, s.Resume())
	works(t, p[1].Mutex(nameOf(t, "/short")))
	if err := lease.Err(); err != nil {
		t.Errorf("lost in less than its TTL: %v", err)
	}
	unlock(t, lease)
}

func TestConnectionReset(t *testing.T) {
	p := peers(t, shared.Addr(), 2)
	lease := lock(t, p[0].Mutex(nameOf(t)))
	next := queue(t, shared.Addr(), p[1], nameOf(t))
	p[1].proxy.Reset()
	p[0].proxy.Reset()
	wantLost(t, lease)
	unlock(t, receive(t, "the lock", next))
	works(t, p[0].Mutex(nameOf(t)))
}

// TestBlackhole cuts the holder off, with the waiter's clock running on the
// server: the holder knows first.
func TestBlackhole(t *testing.T) {
	t.Parallel()
	p := peers(t, shared.Addr(), 2)
	lease := lock(t, p[0].Mutex(nameOf(t)))
	next := queue(t, shared.Addr(), p[1], nameOf(t))
	p[0].proxy.Blackhole(faultnet.BothWays)
	later := receive(t, "the lock", next)
	if err := lease.Err(); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("the next holder is in, and the last one's lease says %v", err)
	}
	p[0].proxy.Restore(faultnet.BothWays)
	unlock(t, later)
	works(t, p[0].Mutex(nameOf(t)))
}

func TestReplyDropped(t *testing.T) {
	p := peers(t, shared.Addr(), 2)
	for i := range 4 {
		name := nameOf(t, fmt.Sprint(i))
		drop := p[0].proxy.DropReply(1)
		lease, err := p[0].Mutex(name).Lock(testContext(t))
		must(t, err) // a request that waits asks again
		receive(t, "the drop", drop.Fired())
		drop = p[0].proxy.DropReply(1)
		if err := lease.Unlock(testContext(t)); !errors.Is(err, dlock.ErrUnavailable) {
			t.Errorf("unlock without a reply: %v", err)
		}
		receive(t, "the drop", drop.Fired())
		works(t, p[1].Mutex(name))
		works(t, p[0].Mutex(name))
	}
}

// TestSliceRacesGrant has waits end at every moment around the grant, by their
// slice and by their callers: nothing stays locked. On a busy machine a context
// is done before its call begins, whose error then has no kind.
func TestSliceRacesGrant(t *testing.T) {
	const clients, loops = 4, 100
	var n int
	var all sync.WaitGroup
	var last *peer
	for range clients {
		p := newPeer(t, shared.Addr(), Options{Slice: 2 * time.Millisecond}, 10*time.Second)
		last = p
		all.Go(func() {
			for range loops {
				ctx, cancel := context.WithTimeout(testContext(t), time.Duration(1+rand.IntN(40))*time.Millisecond)
				lease, err := p.Mutex(nameOf(t)).Lock(ctx)
				cancel()
				if err != nil {
					var e *dlock.Error
					early := errors.As(err, &e) && e.Kind == nil && errors.Is(err, context.DeadlineExceeded)
					if !early && !errors.Is(err, dlock.ErrHeld) && !errors.Is(err, dlock.ErrUnavailable) {
						t.Errorf("lock: %v", err)
					}
					continue
				}
				n++
				time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
				unlock(t, lease)
			}
		})
	}
	all.Wait()
	if n == 0 {
		t.Fatal("nobody got the lock")
	}
	works(t, last.Mutex(nameOf(t)))
	a := admin(t, shared.Addr())
	eventually(t, "nothing left", func() bool {
		return inLocks(t, a, last.backend, nameOf(t), true)+inLocks(t, a, last.backend, nameOf(t), false) == 0
	})
}

func TestNoConnectionLeft(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Postgres{Settings: []string{"max_connections=8", "superuser_reserved_connections=1"}})
	a := admin(t, s.Addr())
	execute(t, a, "CREATE ROLE plain LOGIN")
	cfg := configOf(t, s.Addr())
	b0, err := New(testContext(t), cfg, nil) // makes the sequence
	must(t, err)
	must(t, b0.Close(testContext(t)))
	execute(t, a, "GRANT USAGE, UPDATE ON SEQUENCE dlock_fence, dlock_fence_floor TO plain")
	cfg.User = "plain"
	var clients []*dlock.Client
	for range 2 {
		b, err := New(testContext(t), cfg, nil)
		must(t, err)
		c, err := dlock.New(b, nil)
		must(t, err)
		defer c.Close(testContext(t))
		clients = append(clients, c)
	}
	first := lock(t, clients[0].Mutex("a"))
	second := lock(t, clients[1].Mutex("b"))
	for full := false; !full; {
		taken := configOf(t, s.Addr())
		taken.User = "plain"
		c, err := pgconn.ConnectConfig(testContext(t), &taken.Config)
		full = err != nil
		if err == nil {
			defer c.Close(testContext(t))
		}
	}
	if _, err := New(testContext(t), cfg, nil); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("connecting to a full server: %v", err)
	}
	next := locking(t, clients[1].Mutex("a")) // there is no connection to wait on
	unlock(t, first)
	unlock(t, receive(t, "the lock", next))
	unlock(t, second)
}

// TestNothingToWaitOn has a request wait that gets no connection for that, while two clients
// that have some pass the lock on all the time. It has its turn, and does not ask for a
// connection again and again.
func TestNothingToWaitOn(t *testing.T) {
	t.Parallel()
	s := server.Start(t, testServer)
	o := Options{Slice: 300 * time.Millisecond}
	others := []*peer{newPeer(t, s.Addr(), o, ttl), newPeer(t, s.Addr(), o, ttl)}
	a := admin(t, s.Addr())
	execute(t, a, "CREATE ROLE narrow LOGIN CONNECTION LIMIT 1", "GRANT USAGE, UPDATE ON SEQUENCE dlock_fence, dlock_fence_floor TO narrow")
	proxy, err := faultnet.Listen(s.Addr())
	must(t, err)
	defer proxy.Close()
	cfg := configOf(t, proxy.Addr())
	cfg.User = "narrow"
	b, err := New(testContext(t), cfg, &o)
	must(t, err)
	c, err := dlock.New(b, &dlock.Options{TTL: ttl})
	must(t, err)
	defer c.Close(testContext(t))
	var served atomic.Bool
	var all sync.WaitGroup
	defer all.Wait()
	defer served.Store(true)
	first := lock(t, others[0].Mutex(nameOf(t)))
	for _, p := range others {
		all.Go(func() {
			for !served.Load() {
				lease, err := p.Mutex(nameOf(t)).Lock(testContext(t))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(2 * time.Millisecond)
				_ = lease.Unlock(testContext(t))
			}
		})
	}
	eventually(t, "queued", func() bool { return inLocks(t, a, b, nameOf(t), false) > 0 })
	waiting := locking(t, c.Mutex(nameOf(t)))
	eventually(t, "a claim", func() bool {
		return number(t, a, "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND objsubid = 2 AND usename = 'narrow'") > 0
	})
	unlock(t, first)
	unlock(t, receive(t, "the lock", waiting))
	if n := proxy.Stats().Accepted; n > 20 {
		t.Errorf("%d connections were asked for", n)
	}
}

// TestTwoNamesOneKey gives two names one key: they exclude one another, on one
// client as on two.
func TestTwoNamesOneKey(t *testing.T) {
	t.Parallel()
	p := peers(t, shared.Addr(), 2)
	for _, q := range p {
		q.backend.key = func(string) int64 { return 4711 }
	}
	lease := lock(t, p[0].Mutex("a"))
	for _, q := range p {
		if _, err := q.Mutex("b").TryLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("two holders of one key: %v", err)
		}
	}
	here, there := locking(t, p[0].Mutex("b")), locking(t, p[1].Mutex("b"))
	short, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	if _, err := p[0].Mutex("c").Lock(short); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("two holders of one key: %v", err)
	}
	unlock(t, lease)
	for range 2 {
		select {
		case l := <-here:
			unlock(t, l)
			here = nil
		case l := <-there:
			unlock(t, l)
			there = nil
		case <-time.After(limit):
			t.Fatal("the lock is stuck")
		}
	}
	reader, err := p[0].RWMutex("a").RLock(testContext(t))
	must(t, err)
	second, err := p[0].RWMutex("b").RLock(testContext(t))
	must(t, err)
	if _, err := p[0].RWMutex("c").TryLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("a writer beside readers: %v", err)
	}
	unlock(t, reader)
	unlock(t, second)
	works(t, p[1].Mutex("c"))
}

// TestWaitersLetIndexesBeBuilt builds an index without locking its table,
// which waits for every older snapshot, while others wait for a lock.
func TestWaitersLetIndexesBeBuilt(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	q := newPeer(t, shared.Addr(), Options{Slice: 300 * time.Millisecond}, 10*time.Second)
	lease := lock(t, p.Mutex(nameOf(t)))
	next := queue(t, shared.Addr(), q, nameOf(t))
	a := admin(t, shared.Addr())
	execute(t, a, "CREATE TABLE indexed (n int)", "CREATE INDEX CONCURRENTLY ON indexed (n)", "DROP TABLE indexed")
	select {
	case l := <-next:
		t.Fatalf("a held lock was granted: %v", l)
	default:
	}
	unlock(t, lease)
	unlock(t, receive(t, "the lock", next))
}

// TestUnlockSaysNo has a session lose its locks without its end, as behind a
// pooler that was vouched for in error: whoever finds out first tells all.
func TestUnlockSaysNo(t *testing.T) {
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	lease, other := lock(t, p.Mutex(nameOf(t))), lock(t, p.Mutex(nameOf(t, "/other")))
	for _, s := range p.backend.alive() {
		_, err := s.do(testContext(t), unlockAll, 0)
		must(t, err)
	}
	if err := lease.Unlock(testContext(t)); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("unlock of a lock that the server does not know: %v", err)
	}
	wantLost(t, other)
	works(t, p.Mutex(nameOf(t)))
}

// TestLeasesApart uses locks of many leases: each connection keeps its own.
func TestLeasesApart(t *testing.T) {
	t.Parallel()
	p := newPeer(t, shared.Addr(), Options{}, 10*time.Second)
	short, err := p.Mutex(nameOf(t, "/short"), dlock.WithTTL(time.Second)).Lock(testContext(t))
	must(t, err)
	long, err := p.Mutex(nameOf(t, "/long"), dlock.WithTTL(20*time.Second)).Lock(testContext(t))
	must(t, err)
	if n := p.backend.connections(); n != 2 {
		t.Errorf("%d connections for two leases", n)
	}
	p.proxy.Blackhole(faultnet.BothWays)
	wantLost(t, short)
	q := newPeer(t, shared.Addr(), Options{}, ttl)
	works(t, q.Mutex(nameOf(t, "/short")))
	must(t, long.Err())
	p.proxy.Restore(faultnet.BothWays)
	must(t, long.Err())
	unlock(t, long)
}

// TestCloseOfSilentServer ends in the time it is given although a request is
// unanswered whose lease is long.
func TestCloseOfSilentServer(t *testing.T) {
	t.Parallel()
	p := newPeer(t, shared.Addr(), Options{}, time.Hour)
	works(t, p.Mutex(nameOf(t)))
	p.proxy.Blackhole(faultnet.BothWays)
	ctx, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
	defer cancel()
	if _, err := p.Mutex(nameOf(t)).Lock(ctx); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("a server that does not answer: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close(ctx) }()
	receive(t, "close", closed)
	p.proxy.Restore(faultnet.BothWays)
}

// TestFirstHostSilent lists a host that accepts connections and says nothing before
// one that answers.
func TestFirstHostSilent(t *testing.T) {
	t.Parallel()
	p, err := faultnet.Listen(shared.Addr())
	must(t, err)
	defer p.Close()
	p.Blackhole(faultnet.BothWays)
	c, err := open1(t, "postgres://postgres@"+p.Addr()+","+shared.Addr()+"/postgres?sslmode=disable")
	must(t, err)
	works(t, c.Mutex(nameOf(t)))
}
