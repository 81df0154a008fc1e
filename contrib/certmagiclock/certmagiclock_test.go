package certmagiclock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/contrib/certmagiclock"
)

func newStorage(t testing.TB, b *memory.Backend) *certmagiclock.Storage {
	t.Helper()
	client, err := dlock.New(b, nil)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return certmagiclock.New(&certmagic.FileStorage{Path: t.TempDir()}, client)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// triesToLock checks what TryLock says.
func triesToLock(t testing.TB, s *certmagiclock.Storage, name string, want bool) {
	t.Helper()
	if ok, err := s.TryLock(t.Context(), name); ok != want || err != nil {
		t.Errorf("TryLock %s: %v, %v, want %v", name, ok, err, want)
	}
}

func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := newStorage(t, memory.New(server)), newStorage(t, memory.New(server))
		names := []string{"issue_cert_*.example.com", "issue_cert_2001:db8::1", "../a/b/", "ari_aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE="}
		for _, name := range names {
			must(t, a.Lock(t.Context(), name))
			triesToLock(t, a, name, false)
			triesToLock(t, b, name, false)
		}
		for _, name := range names {
			must(t, a.RenewLockLease(t.Context(), name, time.Hour))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			must(t, a.Unlock(ctx, name))
			is(t, a.Unlock(t.Context(), name), dlock.ErrNotHeld)
			triesToLock(t, b, name, true)
			must(t, b.Unlock(t.Context(), name))
		}
	})
}

func TestServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		s := newStorage(t, memory.New(server))
		server.Freeze()
		defer server.Thaw()
		is(t, s.Lock(t.Context(), "x"), dlock.ErrUnavailable)
		ok, err := s.TryLock(t.Context(), "x")
		is(t, err, dlock.ErrUnavailable)
		if ok {
			t.Error("TryLock says that it has the lock")
		}
		is(t, s.RenewLockLease(t.Context(), "x", time.Hour), dlock.ErrNotHeld)
	})
}

func TestLockEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := newStorage(t, memory.New(server)), newStorage(t, memory.New(server))
		must(t, a.Lock(t.Context(), "x"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := b.Lock(ctx, "x")
		is(t, err, dlock.ErrHeld)
		is(t, err, context.DeadlineExceeded)
		must(t, a.Unlock(t.Context(), "x"))
		triesToLock(t, a, "x", true)
	})
}

// An attempt whose lock was lost waits for whoever has it now, and goes on with a lock of
// its own.
func TestLostLockIsTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := newStorage(t, memory.New(server)), newStorage(t, memory.New(server))
		must(t, a.Lock(t.Context(), "x"))
		server.Evict("x")
		must(t, b.Lock(t.Context(), "x"))

		renewed := make(chan error)
		go func() { renewed <- a.RenewLockLease(t.Context(), "x", time.Hour) }()
		time.Sleep(time.Hour)
		select {
		case err := <-renewed:
			t.Errorf("renewed while another has the lock: %v", err)
		default:
		}
		must(t, b.Unlock(t.Context(), "x"))
		must(t, <-renewed)
		triesToLock(t, b, "x", false)
		must(t, a.Unlock(t.Context(), "x"))
		triesToLock(t, b, "x", true)
	})
}

func TestUnlockOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		a, b := newStorage(t, memory.New(server)), newStorage(t, memory.New(server))
		must(t, a.Lock(t.Context(), "x"))
		server.Evict("x")
		must(t, b.Lock(t.Context(), "x"))
		is(t, a.Unlock(t.Context(), "x"), dlock.ErrLost)
		triesToLock(t, a, "x", false)
		must(t, b.Unlock(t.Context(), "x"))
	})
}
