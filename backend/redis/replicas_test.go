package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/server"
)

// askingReplicas is the URL of s where one replica has to acknowledge.
func askingReplicas(s *server.Server) string { return "redis://" + s.Addr() + "?dlock.replicas=1" }

// A countingConn counts writes that carry a script, and those of them that ask
// replicas as well.
type countingConn struct {
	net.Conn
	scripts, asking *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("evalsha")) {
		c.scripts.Add(1)
		if bytes.Contains(b, []byte("wait")) {
			c.asking.Add(1)
		}
	}
	return c.Conn.Write(b)
}

// TestReplicasAreAskedInTheSameRoundTrip looks at what is sent with and without
// dlock.replicas: off means that nothing is.
func TestReplicasAreAskedInTheSameRoundTrip(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.StartReplicated(t, 1, server.Redis{}).Primary
	for replicas, want := range map[int][2]int64{0: {2, 0}, 1: {2, 1}} {
		var scripts, asking atomic.Int64
		rdb := redis.NewClient(&redis.Options{
			Addr: s.Addr(),
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return countingConn{conn, &scripts, &asking}, err
			},
		})
		t.Cleanup(func() { _ = rdb.Close() })
		c := must[*dlock.Client](t)(dlock.New(New(rdb, &Options{Replicas: replicas}), nil))
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		must[any](t)(nil, turns(ctx, c.Mutex(t.Name()), 1)) // the server knows the scripts
		before := commandsOf(t, s)
		scripts.Store(0)
		asking.Store(0)
		must[any](t)(nil, turns(ctx, c.Mutex(t.Name()), 1))
		if got := [2]int64{scripts.Load(), asking.Load()}; got != want {
			t.Errorf("replicas=%d: %d requests, %d of which ask replicas; want %v", replicas, got[0], got[1], want)
		}
		if n := commandsOf(t, s)["wait"] - before["wait"]; n != want[1] {
			t.Errorf("replicas=%d: %d WAIT, want %d", replicas, n, want[1])
		}
	}
}

func unreplicated(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, dlock.ErrUnavailable) || !strings.Contains(err.Error(), "0 of the 1 replicas") {
		t.Errorf("without a replica: %v", err)
	}
}

// TestUnacknowledgedLockFails asks for a replica where there is none: the lock
// is not had, and nothing is left of it.
func TestUnacknowledgedLockFails(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c := openURL(t, askingReplicas(shared), nil)
	other := openClient(t, shared, nil)
	_, err := c.Mutex(t.Name()).Lock(ctx)
	unreplicated(t, err)
	must[any](t)(nil, turns(ctx, other.Mutex(t.Name()), 1))
	_, err = c.Mutex(t.Name()).TryLock(ctx)
	unreplicated(t, err)
	_, err = c.RWMutex(t.Name()).RLock(ctx)
	unreplicated(t, err)
	must[any](t)(nil, turns(ctx, other.Mutex(t.Name()), 1))
}

// TestUnacknowledgedHandOverFails is the same for one who is told: it asks the
// replicas before it believes.
func TestUnacknowledgedHandOverFails(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, other := openURL(t, askingReplicas(shared), nil), openClient(t, shared, nil)
	l := must[*dlock.Lease](t)(other.Mutex(t.Name()).Lock(ctx))
	failed := make(chan error, 1)
	go func() { _, err := c.Mutex(t.Name()).Lock(ctx); failed <- err }()
	admin := plainClient(t, shared)
	eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1 })
	must[any](t)(nil, l.Unlock(ctx))
	unreplicated(t, <-failed)
	must[any](t)(nil, turns(ctx, other.Mutex(t.Name()), 1))
}

// TestUnacknowledgedRenewalIsNotBelieved stops the replica under a holder.
func TestUnacknowledgedRenewalIsNotBelieved(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	r := server.StartReplicated(t, 1, server.Redis{})
	const ttl = 2 * loadTTL
	c := openURL(t, askingReplicas(r.Primary), &dlock.Options{TTL: ttl})
	kept := must[*dlock.Lease](t)(c.Mutex(t.Name()).Lock(ctx))
	end, admin := time.Now().Add(2*ttl).UnixMilli(), plainClient(t, r.Primary)
	eventually(t, "it outlives the lease that it had", func() bool { return kept.Err() != nil || expiry(t, admin, t.Name()) > end })
	if err := kept.Err(); err != nil {
		t.Fatalf("with its replica: %v", err)
	}
	must[any](t)(nil, r.Replicas[0].Pause())
	select {
	case <-kept.Done():
	case <-ctx.Done():
		t.Fatal("a hold lives on that no replica knows of")
	}
	must[any](t)(nil, r.Replicas[0].Resume())
	eventually(t, "the replica is back", func() bool { return turns(ctx, c.Mutex(t.Name()), 1) == nil })
}

// TestReplicatedLocksSurviveTheMaster has clients work whose every lock a
// replica knows: no two hold at once while that takes over.
func TestReplicatedLocksSurviveTheMaster(t *testing.T) {
	t.Parallel()
	w, admin := startWatched(t, 1, silence)
	url := sentinelURL(w) + "?dlock.replicas=1"
	c := startLoad(t, url, loadTTL, true, "a", "b", "c")
	c.works()
	must[any](t)(nil, w.Primary.Kill())
	promoted(t, w.Replicas[0])
	must[any](t)(nil, w.Primary.Restart(true)) // as the replica that there has to be
	c.works()
	c.end()
	c.checkCounts(url, admin)
}

// TestReplicatedLocksSurviveAShard is the same on a cluster.
func TestReplicatedLocksSurviveAShard(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	url := clusterURL(c) + "?dlock.replicas=1"
	workers := startLoad(t, url, loadTTL, true, nameOn(t, admin, c.Masters[0]), nameOn(t, admin, c.Masters[1]))
	workers.works()
	must[any](t)(nil, c.Masters[0].Kill())
	promoted(t, c.Replicas[0])
	must[any](t)(nil, c.Masters[0].Restart(true))
	workers.works()
	workers.end()
	admin.ReloadState(context.Background())
	workers.checkCounts(url, admin)
}

// openDoomed is openURL for a server that will be gone when the client is closed.
func openDoomed(t *testing.T, url string, o *dlock.Options) *dlock.Client {
	t.Helper()
	c := must[*dlock.Client](t)(dlock.Open(t.Context(), url, o))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// TestKnownLimitUnreplicatedLock shows what a master that dies takes with it: a
// lock that its replica has not heard of is granted again by that, while its
// first holder believes in it. The token tells them apart. With dlock.replicas=1
// the first Lock fails instead.
func TestKnownLimitUnreplicatedLock(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	r := server.StartReplicated(t, 1, server.Redis{})
	replica := plainClient(t, r.Replicas[0])
	careless := openDoomed(t, "redis://"+r.Primary.Addr(), &dlock.Options{TTL: 10 * time.Minute})
	careful := openDoomed(t, askingReplicas(r.Primary), nil)
	must[string](t)(replica.ReplicaOf(ctx, "127.0.0.1", "1").Result()) // cut off
	first := must[*dlock.Lease](t)(careless.Mutex("careless").Lock(ctx))
	_, err := careful.Mutex("careful").Lock(ctx)
	unreplicated(t, err)
	must[any](t)(nil, r.Primary.Kill())
	must[string](t)(replica.ReplicaOf(ctx, "no", "one").Result())

	after := openClient(t, r.Replicas[0], nil)
	second := must[*dlock.Lease](t)(after.Mutex("careless").Lock(ctx))
	if first.Err() != nil || second.Token() <= first.Token() {
		t.Errorf("the first holder believes: %v; tokens %d, %d", first.Err() == nil, first.Token(), second.Token())
	}
	must[any](t)(nil, second.Unlock(ctx))
	must[any](t)(nil, turns(ctx, after.Mutex("careful"), 1))
}

// TestAReplicaSaysNothingOfHolds asks one about what it does not know. It may know less
// than its master, and a connection to it ends only by what it refuses.
func TestAReplicaSaysNothingOfHolds(t *testing.T) {
	t.Parallel()
	c, k := plainClient(t, server.StartReplicated(t, 1, server.Redis{}).Replicas[0]), lockKey(t.Name())
	id := "w60000:client:1.AAAAAAAAAAA"
	for name, ask := range map[string]struct {
		script *script
		call   []any
	}{
		"renew":                     {renewScript, renewScript.callWith(k, 1, 1, 60000, id)},
		"renew what may be shared":  {renewScript, renewScript.callWith(k, 5, 5, 60000, id)},
		"acquire of who has waited": {acquireScript, acquireScript.callWith(k, 5, id, 60000, "p")},
		"enter":                     {enterScript, enterScript.callWith(k, 2, id, 60000, 2, 1)},
	} {
		reply, err := c.Do(within(t), ask.script.whole("eval", ask.call)...).Result()
		if !redis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("%s: %v, %v", name, reply, err)
		}
	}
}
