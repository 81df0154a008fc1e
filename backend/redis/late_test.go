package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// after is a hook that calls f when commands have been answered of which one is name, once.
type after struct {
	name string
	once *sync.Once
	f    func()
}

func (after) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		a.see(cmd)
		return err
	}
}

func (a after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		a.see(cmds...)
		return err
	}
}

func (a after) see(cmds ...redis.Cmder) {
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(a.name)) }) {
		a.once.Do(a.f)
	}
}

// A pausing connection calls pause before it sends WAIT, once.
type pausing struct {
	net.Conn
	once  *sync.Once
	pause func()
}

func (c pausing) Write(b []byte) (int, error) {
	if i := bytes.Index(b, []byte("*3\r\n$4\r\nwait")); i > 0 {
		if n, err := c.Conn.Write(b[:i]); err != nil {
			return n, err
		}
		c.once.Do(c.pause)
		n, err := c.Conn.Write(b[i:])
		return i + n, err
	}
	return c.Conn.Write(b)
}

// A master grants a lock, which its replica hears of, and becomes a replica of that before it is
// asked whether it has heard. The call ends at that moment: the lock is given back.
func TestGrantOfAnOldMasterIsGivenBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	servers := server.StartAll(t, server.Redis{}, server.Redis{})
	old, next := plainClient(t, servers[0]), plainClient(t, servers[1])
	follow(t, next, servers[0])
	awaitAcks(t, old)
	must[string](t)(old.ScriptLoad(ctx, acquireScript.source).Result())
	var addr atomic.Value
	addr.Store(servers[0].Addr())
	has := func() bool { return next.HExists(context.Background(), mainKey(t.Name()), "o").Val() }
	once := new(sync.Once)
	client := redis.NewClient(&redis.Options{
		DisableIdentity: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
			return pausing{conn, once, func() {
				eventually(t, "the replica has the grant", has)
				must[any](t)(next.Do(context.Background(), "replicaof", "no", "one").Result())
				addr.Store(servers[1].Addr())
				follow(t, old, servers[1])
			}}, err
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(after{"wait", new(sync.Once), cancel})
	b := New(client, &Options{Replicas: 1})
	r := requestOf(t, "client", backend.Exclusive)
	r.TTL = time.Hour
	if h, err := b.Acquire(ctx, r); err == nil {
		t.Fatalf("it was granted: %v", h)
	}
	must[any](t)(nil, b.Close(within(t)))
	if has() {
		t.Error("the lock is held for an hour by nobody")
	}
}

// lostObserver hears of a loss.
type lostObserver struct {
	silentObserver
	lost chan error
}

func (o lostObserver) Lost(err error) { o.lost <- err }

// The message that a hold was taken away overtakes the answer that grants it. The holder is told
// as soon as it has the lock, and not by its first renewal.
func TestBreakOvertakesTheGrant(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	client, other := plainClient(t, shared), newBackend(t, plainClient(t, shared), nil)
	b := newBackend(t, client, nil)
	r, o := requestOf(t, "client", backend.Exclusive), lostObserver{lost: make(chan error, 1)}
	r.Observer = o
	if !b.listener.existing(b.channelOf(lockKey(r.Name), r.ID.Client)).works(ctx, limit) {
		t.Fatal("no subscription")
	}
	must[string](t)(client.ScriptLoad(ctx, acquireScript.source).Result())
	heeded := func() bool {
		b.listener.mu.Lock()
		defer b.listener.mu.Unlock()
		return len(b.listener.early) > 0
	}
	client.AddHook(after{acquireScript.sha, new(sync.Once), func() {
		s := must[backend.Snapshot](t)(other.Inspect(ctx, r.Name))
		must[any](t)(nil, other.Break(ctx, r.Name, s.Holders[0].Token))
		eventually(t, "the message comes", heeded)
	}})
	must[*backend.Hold](t)(b.Acquire(ctx, r))
	next := requestOf(t, "other", backend.Exclusive)
	next.Wait = false
	must[*backend.Hold](t)(other.Acquire(ctx, next))
	select {
	case err := <-o.lost:
		is(t, err, backend.ErrBroken)
	case <-time.After(5 * time.Second):
		t.Error("who has lost the lock is not told, and another has it")
	}
}

// The answer to a downgrade is lost, and the slot of the lock moves: what is renewed by one key
// then is the hold of a reader, though its client does not know that for sure.
func TestRenewalOfAnUnansweredDowngradeWhileASlotMoves(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	b := newBackend(t, plainClient(t, shared), nil)
	h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "client", backend.Exclusive)))
	must[any](t)(nil, b.Downgrade(ctx, h)) // of which the client does not hear: h.Mode stays
	a, expiries, err := b.renewMoving(ctx, limit, h)
	must[any](t)(nil, err)
	if err := renewed(h, false, a, expiries[0]); errors.Is(err, backend.ErrLost) {
		t.Error("the server has the hold:", err)
	}
}
