package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/comingfrom/internal/changeover"
	"github.com/dlock-go/dlock/internal/server"
)

func connect(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t *testing.T, c *clientv3.Client) *dlock.Client {
	t.Helper()
	client, err := NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	return client
}

func TestChangeOver(t *testing.T) {
	t.Parallel()
	addr := server.Start(t, server.Etcd{}).Addr()
	admin := connect(t, addr)
	v := changeover.Versions{
		New:     open(t, admin),
		TakeOld: func(ctx context.Context, name string) error { return revoke(ctx, admin, name) },
	}
	for i := range 2 {
		c := connect(t, addr)
		client := open(t, c)
		v.Before[i], v.Both[i], v.After[i] = changeover.Process(client, c, Before, Both, After)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// revoke ends the session of the holder.
func revoke(ctx context.Context, c *clientv3.Client, name string) error {
	held, err := c.Get(ctx, "/locks/"+name, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	if len(held.Kvs) != 1 {
		return errors.New("not held")
	}
	_, err = c.Revoke(ctx, clientv3.LeaseID(held.Kvs[0].Lease))
	return err
}

// Two mutexes of one session have the lock together, and two elections lead together.
func TestTwoOfOneSession(t *testing.T) {
	t.Parallel()
	session, err := concurrency.NewSession(connect(t, server.Start(t, server.Etcd{}).Addr()))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := concurrency.NewMutex(session, "/locks/one").TryLock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := concurrency.NewElection(session, "/leaders/one").Campaign(t.Context(), "a leader"); err != nil {
			t.Error(err)
		}
	}
}

// Who has lost the session is told by the next Lock, at the end of a wait for one, and not
// by Unlock.
func TestLostSession(t *testing.T) {
	t.Parallel()
	c := connect(t, server.Start(t, server.Etcd{}).Addr())
	var sessions [2]*concurrency.Session
	for i := range sessions {
		var err error
		if sessions[i], err = concurrency.NewSession(c); err != nil {
			t.Fatal(err)
		}
	}
	held, waited := concurrency.NewMutex(sessions[0], "/locks/lost"), concurrency.NewMutex(sessions[1], "/locks/lost")
	if err := held.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- waited.Lock(t.Context()) }()
	revokeFromLast(t, c, "/locks/lost/", 2)
	if err := <-ended; !errors.Is(err, concurrency.ErrSessionExpired) {
		t.Error(err)
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := held.Lock(t.Context()); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Error(err)
	}
}

// A client of this library has another session instead: a call that waits goes on, and only
// the holder is told.
func TestLostSessionOfAClient(t *testing.T) {
	t.Parallel()
	c := connect(t, server.Start(t, server.Etcd{}).Addr())
	holder, waiter := open(t, c), open(t, c)
	lease, err := holder.Mutex("lost").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- After(t.Context(), waiter, "lost", func(context.Context) error { return nil }) }()
	revokeFromLast(t, c, "dlock/l/", 2)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrLost) {
		t.Error(err)
	}
	if err := After(t.Context(), holder, "lost", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

// revokeFromLast waits until n sessions have keys that begin with prefix, and ends each, the
// first in the queue last.
func revokeFromLast(t *testing.T, c *clientv3.Client, prefix string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fromLast := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)}
	for {
		queue, err := c.Get(ctx, prefix, fromLast...)
		if err != nil {
			t.Fatal(err)
		}
		if len(queue.Kvs) < n {
			time.Sleep(time.Millisecond)
			continue
		}
		for _, place := range queue.Kvs {
			if _, err := c.Revoke(ctx, clientv3.LeaseID(place.Lease)); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
}

// NewSession waits where nobody answers, by default for ever.
func TestServerAway(t *testing.T) {
	t.Parallel()
	etcd := server.Start(t, server.Etcd{})
	c := connect(t, etcd.Addr())
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := concurrency.NewSession(c, concurrency.WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A write with a token is refused if a greater one was there before, and only then.
func TestWrite(t *testing.T) {
	t.Parallel()
	c := connect(t, server.Start(t, server.Etcd{}).Addr())
	for _, step := range []struct {
		token uint64
		want  bool
	}{{9, true}, {10, true}, {9, false}, {10, true}, {1 << 40, true}, {11, false}} {
		if got, err := Write(t.Context(), c, "/state/42", fmt.Sprint(step.token), step.token); got != step.want || err != nil {
			t.Errorf("%d: %t %v", step.token, got, err)
		}
	}
	if state, err := c.Get(t.Context(), "/state/42"); err != nil || string(state.Kvs[0].Value) != fmt.Sprint(uint64(1<<40)) {
		t.Error(state, err)
	}
}

// A holder whose key is deleted hears nothing of it: only the session is watched.
func TestDeletedKey(t *testing.T) {
	t.Parallel()
	c := connect(t, server.Start(t, server.Etcd{}).Addr())
	session, err := concurrency.NewSession(c, concurrency.WithTTL(1))
	if err != nil {
		t.Fatal(err)
	}
	mutex := concurrency.NewMutex(session, "/locks/deleted")
	if err := mutex.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), mutex.Key()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-session.Done():
		t.Error("the session has ended")
	case <-time.After(3 * time.Second):
	}
}
