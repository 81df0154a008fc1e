package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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

// Two mutexes of one session have the lock together.
func TestTwoMutexesOfOneSession(t *testing.T) {
	t.Parallel()
	session, err := concurrency.NewSession(connect(t, server.Start(t, server.Etcd{}).Addr()))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := concurrency.NewMutex(session, "/locks/one").TryLock(t.Context()); err != nil {
			t.Error(err)
		}
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
