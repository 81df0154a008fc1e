package redis

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// lagging are a master and its replica, and the way from one to the other.
func lagging(t *testing.T) (master, replica *server.Server, way *faultnet.Proxy) {
	t.Helper()
	ctx, servers := within(t), server.StartAll(t, server.Redis{}, server.Redis{})
	way = must[*faultnet.Proxy](t)(faultnet.Listen(servers[0].Addr()))
	t.Cleanup(func() { _ = way.Close() })
	first, second := plainClient(t, servers[0]), plainClient(t, servers[1])
	host, port, _ := net.SplitHostPort(way.Addr())
	must[any](t)(second.Do(ctx, "replicaof", host, port).Result())
	awaitAcks(t, first)
	must[string](t)(first.ScriptLoad(ctx, acquireScript.source).Result())
	return servers[0], servers[1], way
}

// awaitAcks waits until the replica of a master acknowledges what is written. What it has got with the first copy
// of the data it acknowledges too, and the master may send it nothing for a second after that.
func awaitAcks(t *testing.T, master *redis.Client) {
	t.Helper()
	ctx := within(t)
	eventually(t, "its replica acknowledges", func() bool {
		conn := master.Conn() // WAIT is for its own writes
		defer conn.Close()
		for range 2 {
			if conn.Set(ctx, "x", 1, 0).Err() != nil || conn.Wait(ctx, 1, time.Second).Val() != 1 {
				return false
			}
		}
		return true
	})
}

// notTwo checks the outcome of a Lock that the replica does not know of: the lock is not had, or
// there are two holders when the replica has taken over.
func notTwo(t *testing.T, l *dlock.Lease, err error, master, replica *server.Server) {
	t.Helper()
	if err != nil {
		unreplicated(t, err)
		return
	}
	ctx := within(t)
	t.Error("the replica has not acknowledged it")
	must[any](t)(nil, master.Kill())
	must[any](t)(plainClient(t, replica).Do(ctx, "replicaof", "no", "one").Result())
	second := must[*dlock.Lease](t)(openClient(t, replica, nil).Mutex("a").Lock(ctx))
	if l.Err() == nil && second.Err() == nil {
		t.Errorf("two hold the lock, tokens %d and %d", l.Token(), second.Token())
	}
}

// The reply to a request for a lock is lost. Asked again, on another connection, the server says
// that it is granted, and changes nothing. Since Redis 7.2, and on Valkey, WAIT is for what its own
// connection has changed (client.woff): it says nothing of that grant.
func TestGrantToldTwiceIsAcknowledged(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	master, replica, way := lagging(t)
	p := must[*faultnet.Proxy](t)(faultnet.Listen(master.Addr()))
	t.Cleanup(func() { _ = p.Close() })
	p.SetFraming(faultnet.RESP)
	c := openDoomed(t, "redis://"+p.Addr()+"?dlock.replicas=1", &dlock.Options{TTL: time.Minute})
	way.Blackhole(faultnet.ToClient)
	drop := p.DropReplyAfter(runs(acquireScript))
	l, err := c.Mutex("a").Lock(ctx)
	if !drop.Answered() {
		t.Fatal("the reply was not lost")
	}
	notTwo(t, l, err, master, replica)
}

// A waiter that polls learns of the grant that the release of another client made, by a request
// that changes nothing.
func TestGrantFoundByPollingIsAcknowledged(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	master, _, way := lagging(t)
	c := openDoomed(t, "redis://"+master.Addr()+"?dlock.replicas=1&dlock.wake=poll&dlock.poll=1s", &dlock.Options{TTL: time.Minute})
	holder := openDoomed(t, "redis://"+master.Addr(), nil)
	held := must[*dlock.Lease](t)(holder.Mutex("a").Lock(ctx))
	done := make(chan error, 1)
	go func() {
		_, err := c.Mutex("a").Lock(ctx)
		done <- err
	}()
	admin := plainClient(t, master)
	eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey("a")+":q").Val() == 1 })
	must[string](t)(admin.Set(ctx, "x", 1, 0).Result())
	must[int64](t)(admin.Wait(ctx, 1, limit).Result()) // as of its own writes
	way.Blackhole(faultnet.ToClient)
	must[any](t)(nil, held.Unlock(ctx))
	unreplicated(t, <-done)
}

// A waiter is told of the grant by a message, and has the server prolong it so that its replica is
// asked. Within one millisecond there is nothing to prolong, where a lease is no longer than a grant
// that nobody has confirmed: then nothing is changed, and WAIT says nothing of the grant.
func TestGrantToldByMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	master, _, way := lagging(t)
	admin := plainClient(t, master)
	c := openDoomed(t, "redis://"+master.Addr()+"?dlock.replicas=1", &dlock.Options{TTL: 3 * time.Second})
	holder := openDoomed(t, "redis://"+master.Addr(), nil)
	must[any](t)(nil, turns(ctx, c.Mutex("other"), 1))
	for i := range 20 {
		name := fmt.Sprint("a", i)
		held := must[*dlock.Lease](t)(holder.Mutex(name).Lock(ctx))
		done := make(chan error, 1)
		go func() {
			_, err := c.Mutex(name).Lock(ctx)
			done <- err
		}()
		eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey(name)+":q").Val() == 1 })
		must[string](t)(admin.Set(ctx, "x", 1, 0).Result())
		must[int64](t)(admin.Wait(ctx, 1, limit).Result())
		way.Blackhole(faultnet.ToClient)
		must[any](t)(nil, held.Unlock(ctx))
		unreplicated(t, <-done)
		if t.Failed() {
			return
		}
		way.Restore(faultnet.ToClient)
	}
}

// What a holder goes by is written again where nothing about it changes, on every version.
func TestWhatIsToldIsWritten(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	master, _, _ := lagging(t)
	c := plainClient(t, master)
	sent := func() (n int64) {
		_, after, _ := strings.Cut(must[string](t)(c.Info(ctx, "replication").Result()), "master_repl_offset:")
		_, err := fmt.Sscan(after, &n)
		must[any](t)(nil, err)
		return n
	}
	for _, mode := range []string{"w", "r"} {
		k, id := lockKey("told "+mode), mode+"60000:client:1"
		run := func(s *script, n int, args ...any) {
			t.Helper()
			all := append([]any{"eval", s.source, n}, stringsOf(k.args(n))...)
			must[any](t)(c.Do(ctx, append(all, args...)...).Result())
		}
		run(acquireScript, 5, id, 60000, "w")
		soon := must[int64](t)(c.Do(ctx, "eval", "return redis.call('TIME')[1] * 1000", 0).Int64()) + 1000
		for what, again := range map[string]func(){
			"a request that is sent again": func() { run(acquireScript, 5, id, 60000, "w") },
			"a heartbeat":                  func() { run(acquireScript, 5, id, 60000, "p") },
			"a renewal":                    func() { run(renewScript, 5, 5, -soon, id) },
		} {
			before := sent()
			if again(); sent() == before {
				t.Errorf("%s of %s is answered, and the replica is told nothing", what, id)
			}
		}
	}
}

// A master that becomes a replica while it is asked how many replicas have what it has granted says so,
// in either of two ways. The grant may have gone to the next one.
func TestWaitOfAMasterThatBecomesAReplica(t *testing.T) {
	for _, said := range []reply{
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
		"ERR WAIT cannot be used with replica instances.",
	} {
		c := &command{ack: time.Second}
		new(pipeline).acknowledge([]*command{c}, &request{err: said})
		if !isPassing(c.err) || isUntouched(c.err) {
			t.Errorf("%q is told as %v", said, c.err)
		}
	}
}
