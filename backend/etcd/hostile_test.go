package etcd_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
)

// TestNeighbour has a user with rights to other keys try all that would take a lock away
// or let somebody in.
func TestNeighbour(t *testing.T) {
	s, root := guarded(t)
	ctx := timed(t)
	for _, step := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "next"); return err },
		func() error { _, err := root.UserAdd(ctx, "next", "door"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "next", "next"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "next", "other/", "other0", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
	} {
		must(t, step())
	}
	evil, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "next", Password: "door", Logger: zap.NewNop()})
	must(t, err)
	defer evil.Close()
	open := func() *dlock.Client {
		c, err := dlock.Open(ctx, as(t, "app", "pass/of/app", s.Addr()), &dlock.Options{TTL: time.Minute})
		must(t, err)
		t.Cleanup(func() { c.Close(timed(t)) })
		return c
	}
	lease := locked(t, open().Mutex("a"))
	waiter := start(t, ctx, open().Mutex("a").Lock)
	queued(t, root, 2)
	found, err := root.Get(ctx, prefix(t)+"/", clientv3.WithPrefix())
	must(t, err)
	var all []clientv3.Op
	for _, kv := range found.Kvs {
		key := string(kv.Key)
		all = append(all, clientv3.OpGet(key), clientv3.OpPut(key, "-"), clientv3.OpDelete(key), clientv3.OpDelete(key, clientv3.WithFromKey()))
		if _, err := evil.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err == nil {
			t.Errorf("the lease of %s is revoked", key)
		}
	}
	for _, op := range all {
		if _, err := evil.Do(ctx, op); err == nil {
			t.Errorf("done: %s", op.KeyBytes())
		}
		if *old {
			continue // it lets anybody do anything as a part of a part
		}
		nested := clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{op}, nil)}, nil)}, nil)
		if _, err := evil.Do(ctx, nested); err == nil {
			t.Errorf("done, as a part of a part: %s", op.KeyBytes())
		}
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	for reply := range evil.Watch(watch, prefix(t)+"/", clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if reply.Err() == nil {
			t.Error("it may watch")
			break
		}
	}
	if !waiter.waiting() {
		t.Error("let in")
	}
	must(t, lease.Err())
	must(t, lease.Unlock(ctx))
	must(t, waiter.granted().Unlock(ctx))
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHostilePeer has a user who may write below the prefix write 5,000 times: to the keys
// of a holder and of a waiter, and to others beside them, long and short. It may take a
// lock away by that, as who has the same rights may; but what is no release lets nobody
// in, ends nothing, and costs clients neither goroutines nor memory.
func TestHostilePeer(t *testing.T) {
	const messages, workers = 5000, 50
	ctx := timed(t)
	c := raw(t, shared.Addr())
	lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	waiter := start(t, ctx, open(t, time.Minute, shared.Addr()).Mutex("a").Lock)
	queued(t, c, 2)
	own := keys(t, c)
	leases := make(map[string]clientv3.LeaseID)
	for _, key := range own {
		found, err := c.Get(ctx, key)
		must(t, err)
		leases[key] = clientv3.LeaseID(found.Kvs[0].Lease)
	}
	memory, goroutines, peak := heap(), runtime.NumGoroutine(), 0
	long := strings.Repeat("x", 100_000)
	write := func(i int) error {
		key, value := own[i%2], fmt.Sprint("+", i)
		switch i % 10 {
		case 0:
			_, err := c.Put(ctx, fmt.Sprintf("%s/l/a/w/zz%d", prefix(t), i), "-")
			return err
		case 1:
			_, err := c.Put(ctx, fmt.Sprintf("%s/l/a/r/%d", prefix(t), i), "nonsense")
			return err
		case 2:
			value = "--"
		case 3:
			value = ""
		}
		if i%1000 == 4 {
			value = long
		}
		_, err := c.Put(ctx, key, value, clientv3.WithLease(leases[key]))
		return err
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < messages; i += workers {
				if err := write(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for range 100 {
			peak = max(peak, runtime.NumGoroutine())
			time.Sleep(5 * time.Millisecond)
		}
	})
	all.Wait()
	memory = heap() - memory
	t.Logf("%d goroutines, %d at most; %d KiB", goroutines, peak, memory>>10)
	if peak > goroutines+workers+1000 || memory > 64<<20 {
		t.Errorf("%d goroutines, %d before; %d KiB more", peak, goroutines, memory>>10)
	}
	if !waiter.waiting() {
		t.Error("let in")
	}
	must(t, lease.Err())
	_, err := c.Delete(ctx, prefix(t)+"/l/a/w/zz", clientv3.WithPrefix())
	must(t, err)
	_, err = c.Delete(ctx, prefix(t)+"/l/a/r/", clientv3.WithPrefix())
	must(t, err)
	must(t, lease.Unlock(ctx))
	next := waiter.granted()
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	must(t, next.Unlock(ctx))
}
