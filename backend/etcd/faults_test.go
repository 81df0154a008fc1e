package etcd_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// ttl is that of leases that are to run out, keptTTL of those that are renewed however busy
// the machine is.
const ttl, keptTTL = 2 * time.Second, 6 * time.Second

func locked(t testing.TB, m dlock.Locker) *dlock.Lease {
	t.Helper()
	lease, err := m.Lock(timed(t))
	must(t, err)
	return lease
}

func lost(t testing.TB, l *dlock.Lease) {
	t.Helper()
	within(t, "lost", l.Done())
	is(t, l.Err(), dlock.ErrLost)
}

// recovers waits until m can be locked again.
func recovers(t testing.TB, m dlock.Locker) {
	t.Helper()
	eventually(t, "the client recovers", func() bool {
		lease, err := m.Lock(timed(t))
		if err != nil {
			is(t, err, dlock.ErrUnavailable)
			return false
		}
		must(t, lease.Unlock(timed(t)))
		return true
	})
}

// TestRevokedWhileHolding takes the lease from a holder long before it would be
// renewed.
func TestRevokedWhileHolding(t *testing.T) {
	admin, c := raw(t, shared.Addr()), open(t, 10*time.Minute, shared.Addr())
	writer, reader := locked(t, c.Mutex("a")), locked(t, c.RWMutex("b").RLocker())
	revoke(t, admin)
	lost(t, writer)
	lost(t, reader)
	is(t, writer.Unlock(timed(t)), dlock.ErrLost)
	must(t, locked(t, c.Mutex("a")).Unlock(timed(t)))
	queued(t, admin, 0)
}

// TestRevokedWhileWaiting takes the lease from a waiter, so that the range below
// its key is as empty as when the lock is free.
func TestRevokedWhileWaiting(t *testing.T) {
	for kind, of := range map[string]func(*dlock.RWMutex) dlock.Locker{
		"writer": func(m *dlock.RWMutex) dlock.Locker { return m },
		"reader": func(m *dlock.RWMutex) dlock.Locker { return m.RLocker() },
	} {
		t.Run(kind, func(t *testing.T) {
			admin, a, b := raw(t, shared.Addr()), open(t, time.Minute, shared.Addr()), open(t, time.Minute, shared.Addr())
			lease := locked(t, a.Mutex("a"))
			own := keys(t, admin)[0]
			waiter := start(t, timed(t), of(b.RWMutex("a")).Lock)
			queued(t, admin, 2)
			reply, err := admin.Get(timed(t), prefix(t)+"/l/", clientv3.WithPrefix())
			must(t, err)
			first := int64(0)
			for _, kv := range reply.Kvs {
				if string(kv.Key) != own {
					first = kv.Lease
					_, err = admin.Revoke(timed(t), clientv3.LeaseID(kv.Lease))
					must(t, err)
				}
			}
			eventually(t, "the waiter is queued anew", func() bool {
				reply, err := admin.Get(timed(t), prefix(t)+"/l/", clientv3.WithPrefix())
				must(t, err)
				return len(reply.Kvs) == 2 && reply.Kvs[0].Lease != first && reply.Kvs[1].Lease != first
			})
			if !waiter.waiting() || lease.Err() != nil {
				t.Fatal("the waiter got in beside the holder")
			}
			must(t, lease.Unlock(timed(t)))
			must(t, waiter.granted().Unlock(timed(t)))
		})
	}
}

// TestWaiterCutOff lets a waiter's lease run out while it hears nothing.
func TestWaiterCutOff(t *testing.T) {
	t.Parallel()
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	ctx, cancel := context.WithCancel(timed(t))
	m := open(t, keptTTL, p.Addr()).RWMutex("a")
	complete(t, p)
	before := p.Stats().Requests
	waiter := start(t, ctx, m.RLock)
	queued(t, admin, 2)
	eventually(t, "the waiter knows that it is queued", func() bool { return p.Stats().Requests > before+1 })
	p.Blackhole(faultnet.BothWays)
	queued(t, admin, 1)
	must(t, lease.Unlock(timed(t)))
	next := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	if !waiter.waiting() {
		t.Fatal("a waiter without a lease got the lock")
	}
	cancel()
	within(t, "returned", waiter.done)
	is(t, waiter.err, dlock.ErrHeld)
	must(t, p.Heal())
	must(t, next.Unlock(timed(t)))
	queued(t, admin, 0)
}

// TestLostBeforeFreed cuts holders off and checks that each knows of its loss
// when the next one holds.
func TestLostBeforeFreed(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]faultnet.Way{
		"both ways": faultnet.BothWays, "requests": faultnet.ToServer, "replies": faultnet.ToClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := proxied(t, shared.Addr())
			c := open(t, ttl, p.Addr())
			lease := locked(t, c.Mutex("a"))
			next := start(t, timed(t), open(t, time.Minute, shared.Addr()).Mutex("a").Lock)
			p.Blackhole(way)
			next.granted()
			is(t, lease.Err(), dlock.ErrLost)
			must(t, next.lease.Err())
			must(t, p.Heal())
			must(t, next.lease.Unlock(timed(t)))
			recovers(t, c.Mutex("a"))
		})
	}
}

func TestServerStopped(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind())
	c := open(t, ttl, s.Addr())
	lease := locked(t, c.Mutex("a"))
	waiter := start(t, timed(t), open(t, time.Minute, s.Addr()).Mutex("a").Lock)
	queued(t, raw(t, s.Addr()), 2)
	must(t, s.Pause())
	lost(t, lease)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := c.Mutex("b").Lock(ctx)
	is(t, err, dlock.ErrUnavailable)
	must(t, s.Resume())
	must(t, waiter.granted().Unlock(timed(t)))
	recovers(t, c.Mutex("a"))
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind())
	c, other := open(t, 10*time.Second, s.Addr()), open(t, 10*time.Second, s.Addr())
	lease := locked(t, c.Mutex("a"))
	waiter := start(t, timed(t), other.Mutex("a").Lock)
	queued(t, raw(t, s.Addr()), 2)
	must(t, s.Kill())
	must(t, s.Restart(true))
	if err := lease.Unlock(timed(t)); err != nil { // on a slow machine it may be over by then
		is(t, err, dlock.ErrLost)
	}
	next := waiter.granted()
	if next.Token() <= lease.Token() {
		t.Fatalf("token %d came after %d", next.Token(), lease.Token())
	}
	must(t, next.Unlock(timed(t)))
	recovers(t, c.Mutex("a"))
}

// contains matches the requests that name key.
func contains(key string) func([]byte) bool {
	return func(frame []byte) bool { return bytes.Contains(frame, []byte(key)) }
}

// TestReplyDroppedOnAcquire loses the answer to a request that was carried out.
func TestReplyDroppedOnAcquire(t *testing.T) {
	t.Parallel()
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	c, other := open(t, 10*time.Second, p.Addr()), open(t, 10*time.Second, shared.Addr())
	for _, lock := range []func(context.Context) (*dlock.Lease, error){c.Mutex("a").Lock, c.Mutex("a").TryLock, c.RWMutex("a").RLock} {
		drop := p.DropReplyAfter(contains("/l/a/"))
		lease, err := lock(timed(t))
		must(t, err)
		if !drop.Answered() {
			t.Fatal("the request was not carried out")
		}
		queued(t, admin, 1)
		_, err = other.Mutex("a").TryLock(timed(t))
		is(t, err, dlock.ErrHeld)
		must(t, lease.Unlock(timed(t)))
		queued(t, admin, 0)
	}
}

// TestReplyDroppedOnRelease loses the answer to an Unlock, whose repetition
// must not touch the next holder.
func TestReplyDroppedOnRelease(t *testing.T) {
	t.Parallel()
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	m, other := open(t, 10*time.Second, p.Addr()).Mutex("a"), open(t, 10*time.Second, shared.Addr()).Mutex("a")
	lease := locked(t, m)
	waiter := start(t, timed(t), other.Lock)
	queued(t, admin, 2)
	drop := p.DropReplyAfter(contains("/l/a/"))
	must(t, lease.Unlock(timed(t)))
	if !drop.Answered() {
		t.Fatal("the request was not carried out")
	}
	next := waiter.granted()
	queued(t, admin, 1)
	must(t, next.Err())
	must(t, next.Unlock(timed(t)))
}

// A hookedKV has commit send the transactions of a client, whose first branch is then.
type hookedKV struct {
	clientv3.KV
	commit func(then []clientv3.Op, send func() (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error)
}

func (k *hookedKV) Txn(ctx context.Context) clientv3.Txn { return &hookedTxn{k.KV.Txn(ctx), k, nil} }

type hookedTxn struct {
	clientv3.Txn
	of   *hookedKV
	then []clientv3.Op
}

func (t *hookedTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *hookedTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }
func (t *hookedTxn) Then(o ...clientv3.Op) clientv3.Txn {
	t.Txn, t.then = t.Txn.Then(o...), o
	return t
}

func (t *hookedTxn) Commit() (*clientv3.TxnResponse, error) {
	return t.of.commit(t.then, t.Txn.Commit)
}

// TestReleaseOvertaken has a release arrive after another one of the same hold was
// answered: it does not delete the key of the next hold.
func TestReleaseOvertaken(t *testing.T) {
	ctx, c := timed(t), raw(t, shared.Addr())
	sent, let := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	c.KV = &hookedKV{c.KV, func(then []clientv3.Op, send func() (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
		if len(then) > 0 && then[0].IsDelete() && first.CompareAndSwap(false, true) {
			close(sent)
			<-let
		}
		return send()
	}}
	b := etcd.New(c, &etcd.Options{Prefix: prefix(t)})
	defer b.Close(ctx)
	ask := func(seq uint64) *backend.Hold {
		h, err := b.Acquire(ctx, backend.Request{Name: "a", ID: backend.ID{Client: "c", Seq: seq}, Mode: backend.Exclusive, TTL: time.Minute, Wait: true})
		must(t, err)
		return h
	}
	held := ask(1)
	released := make(chan error, 1)
	go func() { released <- b.Release(ctx, held) }()
	<-sent
	must(t, b.Release(ctx, held))
	second := ask(2)
	close(let)
	must(t, <-released)
	_, err := open(t, time.Minute, shared.Addr()).Mutex("a").TryLock(ctx)
	is(t, err, dlock.ErrHeld)
	must(t, b.Release(ctx, second))
}

// TestUnlockNotDelivered cuts a holder off at the end of work that was protected
// all the time.
func TestUnlockNotDelivered(t *testing.T) {
	t.Parallel()
	p := proxied(t, shared.Addr())
	c := open(t, keptTTL, p.Addr())
	lease := locked(t, c.Mutex("a"))
	p.Blackhole(faultnet.BothWays)
	is(t, lease.Unlock(context.Background()), dlock.ErrUnavailable)
	must(t, p.Heal())
	recovers(t, c.Mutex("a"))
}

// TestReplyDroppedOnDowngrade has it repeated.
func TestReplyDroppedOnDowngrade(t *testing.T) {
	t.Parallel()
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	lease := locked(t, open(t, 10*time.Second, p.Addr()).RWMutex("a"))
	drop := p.DropReplyAfter(contains("/l/a/"))
	must(t, lease.Downgrade(timed(t)))
	if !drop.Answered() {
		t.Fatal("the request was not carried out")
	}
	if got := keys(t, admin); len(got) != 1 || !strings.Contains(got[0], "/l/a/d/") {
		t.Fatalf("keys are %v", got)
	}
	must(t, lease.Unlock(timed(t)))
	queued(t, admin, 0)
}

// TestCompaction takes away the revisions that watches began at, and then the
// connection, so that they are made anew.
func TestCompaction(t *testing.T) {
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	lease := locked(t, open(t, 10*time.Second, shared.Addr()).Mutex("a"))
	waiter := start(t, timed(t), open(t, 10*time.Second, p.Addr()).Mutex("a").Lock)
	queued(t, admin, 2)
	var head int64
	for range 10 {
		reply, err := admin.Put(timed(t), prefix(t)+"/other", "x")
		must(t, err)
		head = reply.Header.Revision
	}
	_, err := admin.Compact(timed(t), head)
	must(t, err)
	p.Reset()
	must(t, lease.Unlock(timed(t)))
	must(t, waiter.granted().Unlock(timed(t)))
}

// TestNoSpace fills the server. Then nothing can be locked, but what is held is kept, and all
// can be unlocked and handed over. Nothing stays behind.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	k := kind()
	k.Args = append(k.Args, "--quota-backend-bytes=4194304")
	s := server.Start(t, k)
	admin, c := raw(t, s.Addr()), open(t, ttl, s.Addr())
	lease, shared := locked(t, c.Mutex("a")), locked(t, c.RWMutex("shared"))
	kept := locked(t, c.Mutex("kept", dlock.WithMinHold(3*ttl)))
	var next []*call
	for i, name := range []string{"a", "kept"} {
		next = append(next, start(t, timed(t), open(t, ttl, s.Addr()).Mutex(name).Lock))
		queued(t, admin, 4+i)
	}
	for full := false; !full; {
		_, err := admin.Put(timed(t), "fill", strings.Repeat("x", 100_000))
		full = err != nil
	}
	for range 3 {
		_, err := c.Mutex("b").Lock(timed(t))
		is(t, err, dlock.ErrUnavailable)
	}
	is(t, shared.Downgrade(timed(t)), dlock.ErrUnavailable)
	is(t, kept.Unlock(timed(t)), dlock.ErrUnavailable)
	must(t, next[1].granted().Unlock(timed(t)))
	must(t, lease.Unlock(timed(t)))
	must(t, next[0].granted().Unlock(timed(t)))
	queued(t, admin, 1)
	makeRoom(t, admin, s.Addr())
	must(t, shared.Downgrade(timed(t)))
	must(t, shared.Unlock(timed(t)))
	queued(t, admin, 0)
	recovers(t, c.Mutex("b"))
}

func makeRoom(t testing.TB, admin *clientv3.Client, addr string) {
	reply, err := admin.Delete(timed(t), "fill")
	must(t, err)
	_, err = admin.Compact(timed(t), reply.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	_, err = admin.Defragment(timed(t), addr)
	must(t, err)
	_, err = admin.AlarmDisarm(timed(t), &clientv3.AlarmMember{})
	must(t, err)
}

// TestKeyDeleted deletes a waiter's key by hand: it queues anew.
func TestKeyDeleted(t *testing.T) {
	admin := raw(t, shared.Addr())
	lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	own := keys(t, admin)[0]
	waiter := start(t, timed(t), open(t, time.Minute, shared.Addr()).Mutex("a").Lock)
	queued(t, admin, 2)
	for _, key := range keys(t, admin) {
		if key != own {
			_, err := admin.Delete(timed(t), key)
			must(t, err)
		}
	}
	must(t, lease.Unlock(timed(t)))
	must(t, waiter.granted().Unlock(timed(t)))
	queued(t, admin, 0)
}

// TestWaitersKeyDeleted deletes the key of a waiter by hand while another is behind it. The
// waiter queues anew at once, and is not let in beside the other one. All that it sends for
// that is one watch of its own key.
func TestWaitersKeyDeleted(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second // nothing is renewed before a third of it
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	locks := prefix(t) + "/l/"
	lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
	b := etcd.New(raw(t, p.Addr()), &etcd.Options{Prefix: prefix(t)})
	etcd.SetCheckEvery(b, time.Hour)
	c, err := dlock.New(b, &dlock.Options{TTL: ttl})
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	must(t, locked(t, c.Mutex("other")).Unlock(timed(t))) // makes a session
	settle(t, p)
	before := p.Stats().Requests
	removed := start(t, timed(t), c.Mutex("a").Lock)
	queued(t, admin, 2)
	newest, err := admin.Get(timed(t), locks, clientv3.WithLastCreate()...)
	must(t, err)
	own := newest.Kvs[0]
	behind := start(t, timed(t), open(t, time.Minute, shared.Addr()).Mutex("a").Lock)
	queued(t, admin, 3)
	eventually(t, "it has joined and watches two keys", func() bool { return p.Stats().Requests >= before+3 && p.Stats().Owed == 0 })
	if n := p.Stats().Requests - before; n > 4 { // a look, if somebody wrote meanwhile
		t.Errorf("it has sent %d requests", n)
	}
	_, err = admin.Delete(timed(t), string(own.Key))
	must(t, err)
	eventually(t, "it has queued anew", func() bool {
		newest, err := admin.Get(timed(t), locks, clientv3.WithLastCreate()...)
		must(t, err)
		return newest.Kvs[0].Lease == own.Lease && newest.Kvs[0].CreateRevision > own.CreateRevision
	})
	must(t, lease.Unlock(timed(t)))
	lease = behind.granted()
	time.Sleep(100 * time.Millisecond) // for an event that must do nothing
	if !removed.waiting() {
		t.Fatal("two hold the lock")
	}
	must(t, lease.Unlock(timed(t)))
	must(t, removed.granted().Unlock(timed(t)))
	queued(t, admin, 0)
}

// TestHoldersKeyDeleted deletes a holder's key by hand: its next renewal tells it
// so, and its release touches nobody else's hold.
func TestHoldersKeyDeleted(t *testing.T) {
	t.Parallel()
	admin, c, other := raw(t, shared.Addr()), open(t, keptTTL, shared.Addr()), open(t, time.Minute, shared.Addr())
	locks := prefix(t) + "/l/"
	for name, hold := range map[string]func(*dlock.RWMutex) *dlock.Lease{
		"writer": func(m *dlock.RWMutex) *dlock.Lease { return locked(t, m) },
		"reader": func(m *dlock.RWMutex) *dlock.Lease { return locked(t, m.RLocker()) },
		"downgraded": func(m *dlock.RWMutex) *dlock.Lease {
			lease := locked(t, m)
			must(t, lease.Downgrade(timed(t)))
			return lease
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept, lease := locked(t, c.Mutex("kept beside "+name)), hold(c.RWMutex(name))
			gone, err := admin.Delete(timed(t), locks+name+"/", clientv3.WithPrefix())
			must(t, err)
			if gone.Deleted != 1 {
				t.Fatalf("%d keys were deleted, want 1", gone.Deleted)
			}
			next := locked(t, other.Mutex(name))
			lost(t, lease)
			is(t, lease.Unlock(timed(t)), dlock.ErrLost)
			must(t, next.Err())
			must(t, kept.Err())
			must(t, next.Unlock(timed(t)))
			must(t, kept.Unlock(timed(t)))
		})
	}
}

// TestReleaseWithoutAKey is a release that finds no key to delete, long before a
// renewal.
func TestReleaseWithoutAKey(t *testing.T) {
	admin := raw(t, shared.Addr())
	lease := locked(t, open(t, time.Hour, shared.Addr()).Mutex("a"))
	_, err := admin.Delete(timed(t), keys(t, admin)[0])
	must(t, err)
	is(t, lease.Unlock(timed(t)), dlock.ErrLost)
}

// TestGrantHeardLate holds back the event that grants a lock: whatever its lease, the
// hold counts from before the answer left.
func TestGrantHeardLate(t *testing.T) {
	const late = 200 * time.Millisecond
	admin := raw(t, shared.Addr())
	for name, fixed := range map[string]bool{"renewed": false, "fixed": true} {
		t.Run(name, func(t *testing.T) {
			p := proxied(t, shared.Addr())
			b := etcd.New(raw(t, p.Addr()), &etcd.Options{Prefix: prefix(t)})
			defer b.Close(timed(t))
			lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("a"))
			granted := make(chan *backend.Hold, 1)
			go func() {
				h, _ := b.Acquire(timed(t), backend.Request{
					Name: "a", ID: backend.ID{Client: "c", Seq: 1}, Mode: backend.Exclusive, TTL: 30*time.Second + 1, Fixed: fixed, Wait: true,
				})
				granted <- h
			}()
			queued(t, admin, 2)
			eventually(t, "the waiter watches", func() bool { return p.Stats().Requests >= 5 && p.Stats().Owed == 0 })
			p.Delay(faultnet.ToClient, late, 0)
			must(t, lease.Unlock(timed(t)))
			h := <-granted
			if h == nil {
				t.Fatal("refused")
			}
			if left := time.Now().Add(-late); h.Sent.After(left) {
				t.Errorf("Sent is %v after the server had answered", h.Sent.Sub(left))
			}
			p.Delay(faultnet.ToClient, 0, 0)
			must(t, b.Release(timed(t), h))
		})
	}
}

// TestNoConnection says why there is none, when the client is opened and later.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	refused := func(what string, err error) {
		t.Helper()
		is(t, err, dlock.ErrUnavailable)
		if !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := dlock.Open(timed(t), "etcd://127.0.0.1:1", nil)
	refused("open", err)
	p := proxied(t, shared.Addr())
	m := open(t, time.Minute, p.Addr()).Mutex("a")
	must(t, locked(t, m).Unlock(timed(t)))
	must(t, p.Close())
	_, err = m.Lock(timed(t))
	refused("lock", err)
	_, err = m.TryLock(timed(t))
	refused("try", err)
}

// A context that the loss of another lock has ended is told as what it is.
func TestOpenUnderALostLock(t *testing.T) {
	t.Parallel()
	lost := &dlock.Error{Op: "hold", Name: "other", Kind: dlock.ErrLost}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(lost) })
	_, err := dlock.Open(ctx, "etcd://127.0.0.1:1", nil)
	is(t, err, dlock.ErrUnavailable)
	is(t, err, context.Canceled)
	is(t, err, lost)
}
