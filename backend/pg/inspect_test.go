package pg

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A lock of the same name in another database is another lock.
func TestInspectOtherDatabase(t *testing.T) {
	ctx := testContext(t)
	a := admin(t, shared.Addr())
	execute(t, a, "DROP DATABASE IF EXISTS dlock_other", "CREATE DATABASE dlock_other")
	b := newPeer(t, shared.Addr(), Options{}, time.Minute)
	cfg := configOf(t, shared.Addr())
	cfg.Database = "dlock_other"
	other, err := pgx.ConnectConfig(ctx, cfg)
	must(t, err)
	defer other.Close(ctx)
	execute(t, other, fmt.Sprintf("SELECT pg_advisory_lock(%d)", b.backend.key(nameOf(t))))
	s, err := b.Inspect(ctx, nameOf(t))
	must(t, err)
	if len(s.Holders) != 0 {
		t.Errorf("held in another database: %+v", s)
	}
}

// Who waits is told of while its statement waits, and while it waits for a notification.
func TestInspectWaiters(t *testing.T) {
	ctx := testContext(t)
	name, elsewhere := nameOf(t), nameOf(t, "elsewhere")
	holder := newPeer(t, shared.Addr(), Options{}, time.Minute)
	defer unlock(t, lock(t, holder.Mutex(name)))
	defer unlock(t, lock(t, holder.Mutex(elsewhere)))
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	p := newPeer(t, shared.Addr(), Options{MaxParked: 1}, time.Minute)
	waits := func(name string, mode backend.Mode) {
		t.Helper()
		eventually(t, "one who waits", func() bool {
			s, err := holder.Inspect(ctx, name)
			must(t, err)
			return len(s.Holders) == 1 && s.Holders[0].Mode == backend.Exclusive && len(s.Waiters) == 1 && s.Waiters[0].Mode == mode
		})
	}
	go func() { _, _ = p.Mutex(elsewhere).Lock(waiting) }()
	waits(elsewhere, backend.Exclusive)
	go func() { _, _ = p.Mutex(name).Lock(waiting) }() // it has to listen
	waits(name, 0)
}

// The connection that listens has the lock itself for a moment, while it finds out whether
// readers may join others. That is no hold.
func TestInspectOfWhoAsksWhetherItMayJoin(t *testing.T) {
	ctx := testContext(t)
	b := newPeer(t, shared.Addr(), Options{}, time.Minute)
	a, key := admin(t, shared.Addr()), b.backend.key(nameOf(t))
	execute(t, a, fmt.Sprintf("SELECT pg_advisory_lock_shared(%d), pg_advisory_lock_shared(%d)", key, key^listenMask))
	s, err := b.Inspect(ctx, nameOf(t))
	must(t, err)
	if len(s.Holders) != 0 || len(s.Waiters) != 1 {
		t.Errorf("one who waits is told of as %+v", s)
	}
}

// What is asked costs a connection for a moment, and leaves none.
func TestInspectLeavesNoConnection(t *testing.T) {
	ctx := testContext(t)
	a := admin(t, shared.Addr())
	b := newPeer(t, shared.Addr(), Options{}, time.Minute)
	const count = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%waitstart%' AND pid <> pg_backend_pid()"
	for range 10 {
		_, err := b.Inspect(ctx, nameOf(t))
		must(t, err)
	}
	eventually(t, "the connections have ended", func() bool { return number(t, a, count) == 0 })
}

// Postgres cannot list names, nor take a hold away.
func TestWhatCannotBeAsked(t *testing.T) {
	unsupported := func(err error) {
		t.Helper()
		if !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("error is %v", err)
		}
	}
	b := newPeer(t, shared.Addr(), Options{}, time.Minute)
	for _, err := range b.Names(testContext(t), "") {
		unsupported(err)
	}
	unsupported(b.Break(testContext(t), nameOf(t), 1))
	must(t, b.Ping(testContext(t)))
	if v := b.Info().Version; v == "" {
		t.Error("no version")
	}
}
