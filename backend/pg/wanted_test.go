package pg

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// TestWanted tells those who hold exclusively, of many locks too, that somebody waits,
// whether that one is in the server's queue or listens. Nothing of it is left on the server.
func TestWanted(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	srv := server.Start(t, server.Postgres{})
	c := admin(t, srv.Addr())
	holder := newPeer(t, srv.Addr(), Options{}, ttl)
	waiter := newPeer(t, srv.Addr(), Options{MaxParked: 1}, ttl)
	for n := range 2 * maxGroup {
		lock(t, holder.Mutex(nameOf(t, fmt.Sprint("other", n))))
	}
	for _, name := range []string{nameOf(t, "queued"), nameOf(t, "listened")} {
		lease := lock(t, holder.Mutex(name))
		blocked := locking(t, waiter.Mutex(name))
		receive(t, "news of who waits", lease.Wanted())
		if said := number(t, c, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "+isKey(keyOfAll)); said != 1 {
			t.Errorf("%d connections say that somebody waits, want one", said)
		}
		defer func() {
			unlock(t, lease)
			unlock(t, receive(t, "lock", blocked))
			eventually(t, "end of what was said", func() bool {
				return number(t, c, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "+isKey(waiter.backend.key(name)^wantMask)) == 0
			})
		}()
	}
	reader := lock(t, holder.RWMutex(nameOf(t, "read")).RLocker())
	if reader.Wanted() != nil {
		t.Error("a reader is to be told, and nobody looks for it")
	}
}

const keyOfAll, wantMask = 7236281174072975726, 0x0f0f0f0f0f0f0f0f

// isKey is the condition that a row of pg_locks is of that key.
func isKey(key int64) string {
	return fmt.Sprintf("objsubid = 1 AND classid = %d AND objid = %d", key>>32&(1<<32-1), key&(1<<32-1))
}

// TestShortWaitsSayNothing has clients pass a lock on, and nobody says that it waits.
func TestShortWaitsSayNothing(t *testing.T) {
	t.Parallel()
	srv := server.Start(t, server.Postgres{})
	c := admin(t, srv.Addr())
	a, b := newPeer(t, srv.Addr(), Options{}, time.Hour), newPeer(t, srv.Addr(), Options{}, time.Hour)
	for range 20 {
		lease := lock(t, a.Mutex(nameOf(t)))
		next := locking(t, b.Mutex(nameOf(t)))
		eventually(t, "wait", func() bool { return inLocks(t, c, b.backend, nameOf(t), false) == 1 })
		if said := number(t, c, "SELECT count(*) FROM pg_locks WHERE "+isKey(keyOfAll)); said != 0 {
			t.Errorf("%d connections say that somebody waits", said)
		}
		unlock(t, lease)
		unlock(t, receive(t, "lock", next))
	}
}

// TestLooksInAFullTable renews holds while there is no room to look for those who wait.
func TestLooksInAFullTable(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second // this process may be without a processor for a while
	srv := server.Start(t, server.Postgres{Settings: []string{"max_locks_per_transaction=10", "max_connections=15"}})
	p := newPeer(t, srv.Addr(), Options{MaxLocks: 1 << 20}, ttl)
	var leases []*dlock.Lease
	for {
		lease, err := p.Mutex(fmt.Sprint(len(leases))).TryLock(testContext(t))
		if errors.Is(err, ErrLockTable) {
			break
		}
		must(t, err)
		leases = append(leases, lease)
	}
	time.Sleep(2 * ttl) // so long that a hold which is not renewed is over
	for _, lease := range leases {
		must(t, lease.Err())
		unlock(t, lease)
	}
}
