package redis

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

var (
	failovers    = flag.Int("redis.failovers", 1, "planned failovers in each series of them")
	perFailover  = flag.Int64("redis.updates", 100, "guarded updates before each planned failover")
	plannedLease = &dlock.Options{TTL: 10 * time.Second} // longer than any failover takes
)

const plannedClients, plannedLocks = 5, 3

// namesOn are locks that a node of a cluster has.
func namesOn(t *testing.T, c *redis.ClusterClient, s *server.Server) (names []string) {
	t.Helper()
	for i := 0; len(names) < plannedLocks; i++ {
		name := fmt.Sprintf("%s/%d", slug(t), i)
		if nodeOf(t, c, name).Options().Addr == s.Addr() {
			names = append(names, name)
		}
	}
	return names
}

// makes waits until n more updates have been made.
func (u *updates) makes(n int64) {
	u.t.Helper()
	sum := func() (all int64) {
		for i := range u.done {
			all += u.done[i].Load()
		}
		return all
	}
	for want := sum() + n; sum() < want; time.Sleep(time.Millisecond) {
		if u.t.Failed() {
			u.t.FailNow()
		}
	}
}

// TestPlannedClusterFailover has a replica take its master's place while clients work
// on a lock there: CLUSTER FAILOVER loses nothing, and the old master lives on as a
// replica, on which subscriptions could stay.
func TestPlannedClusterFailover(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	u := startUpdates(t, severalAt(t, clusterURL(c), plannedClients, plannedLease), namesOn(t, admin, c.Masters[0])...)
	pair := [2]*server.Server{c.Masters[0], c.Replicas[0]}
	voted := time.Time{}
	for range *failovers {
		u.makes(*perFailover)
		// The others give the replica of one master a vote once in this time. Without it
		// the master keeps everybody waiting in vain, for as long as a grant that nobody
		// could confirm lasts.
		time.Sleep(time.Until(voted.Add(2*silence + time.Second)))
		must[any](t)(nil, c.Await())
		voted = time.Now()
		began := time.Now()
		takeOver(t, pair[1])
		demoted(t, pair[0])
		pair[0], pair[1] = pair[1], pair[0]
		u.works()
		t.Logf("every client works %v after the beginning", time.Since(began).Round(time.Millisecond))
	}
	u.makes(*perFailover)
	u.check(nothing)
}

// takeOver has a replica of a cluster become master. It may refuse for as long as it
// has not caught up.
func takeOver(t *testing.T, replica *server.Server, how ...any) {
	t.Helper()
	c := plainClient(t, replica)
	for end := time.Now().Add(limit); time.Now().Before(end); {
		_ = c.Do(context.Background(), append([]any{"cluster", "failover"}, how...)...).Err()
		for wait := time.Now().Add(6 * time.Second); time.Now().Before(wait); time.Sleep(5 * time.Millisecond) {
			if isMaster(c) {
				return
			}
		}
	}
	t.Fatal("the replica does not become master")
}

func isMaster(c *redis.Client) bool {
	return strings.Contains(c.Info(context.Background(), "replication").Val(), "role:master")
}

// TestUnplannedClusterFailover has a replica take over without its master's consent. What
// it had not been told is lost by nature. Nobody is elected twice: within twice the silence
// after its election, Redis counts a replica's old votes again and leaves it its old epoch,
// and a master that has had a greater one since demotes it when it is back.
func TestUnplannedClusterFailover(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	u := startUpdates(t, severalAt(t, clusterURL(c), plannedClients, plannedLease), namesOn(t, admin, c.Masters[0])...)
	u.works()
	takeOver(t, c.Replicas[0], "takeover")
	demoted(t, c.Masters[0])
	u.works()
	takeOver(t, c.Masters[0], "force")
	demoted(t, c.Replicas[0])
	u.works()
	must[any](t)(nil, c.Masters[0].Pause())
	promoted(t, c.Replicas[0])
	u.works()
	must[any](t)(nil, c.Masters[0].Resume())
	demoted(t, c.Masters[0])
	u.works()
	u.check(whatIsRecent)
}

// TestPlannedSentinelFailover has Sentinel promote the replica of a master that is well. The
// command waits for nothing: what the replica had not been told is lost by nature.
func TestPlannedSentinelFailover(t *testing.T) {
	t.Parallel()
	w, _ := startWatched(t, 1, limit)
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: w.Sentinels[0].Addr()})
	t.Cleanup(func() { _ = sentinel.Close() })
	u := startUpdates(t, severalAt(t, sentinelURL(w), plannedClients, plannedLease), slug(t)+"a", slug(t)+"b", slug(t)+"c")
	u.makes(*perFailover)
	must[string](t)(sentinel.Failover(context.Background(), server.PrimaryName).Result())
	promoted(t, w.Replicas[0])
	demoted(t, w.Primary)
	u.works()
	u.check(whatIsRecent)
}

// An anchorage is a primary and a replica behind an address that stays the same while
// they change places, as that of a proxy or a name does.
type anchorage struct {
	t       *testing.T
	address *faultnet.Proxy
	pair    [2]*server.Server // the primary first
	kill    bool              // connections to the old primary are ended
}

func newAnchorage(t *testing.T) *anchorage {
	t.Helper()
	r := server.StartReplicated(t, 1, server.Redis{})
	p := must[*faultnet.Proxy](t)(faultnet.Listen(r.Primary.Addr()))
	t.Cleanup(func() { _ = p.Close() })
	return &anchorage{t: t, address: p, pair: [2]*server.Server{r.Primary, r.Replicas[0]}}
}

// clients are some at the address, on client libraries of their own.
func (a *anchorage) clients() []*dlock.Client {
	a.t.Helper()
	all := make([]*dlock.Client, plannedClients)
	for i := range all {
		rdb := redis.NewClient(&redis.Options{Addr: a.address.Addr(), DisableIdentity: true})
		a.t.Cleanup(func() { _ = rdb.Close() })
		all[i] = must[*dlock.Client](a.t)(dlock.New(New(rdb, nil), plannedLease))
		a.t.Cleanup(func() { _ = all[i].Close(within(a.t)) })
	}
	return all
}

// swap has both change places in the given way.
func (a *anchorage) swap(how func(old, young *redis.Client)) {
	a.t.Helper()
	old, young := plainClient(a.t, a.pair[0]), plainClient(a.t, a.pair[1])
	how(old, young)
	promoted(a.t, a.pair[1])
	a.address.SetTarget(a.pair[1].Addr())
	demoted(a.t, a.pair[0])
	if a.kill {
		for _, kind := range []string{"normal", "pubsub"} {
			_ = old.Do(context.Background(), "client", "kill", "type", kind, "skipme", "yes").Err()
		}
	}
	a.pair[0], a.pair[1] = a.pair[1], a.pair[0]
}

// byFailover is the command FAILOVER.
func (a *anchorage) byFailover(old, _ *redis.Client) {
	a.t.Helper()
	eventually(a.t, "the primary hands over", func() bool {
		return old.Do(context.Background(), "failover").Err() == nil || !isMaster(old)
	})
}

// byReplicaOf is what an operator does step by step.
func (a *anchorage) byReplicaOf(old, young *redis.Client) {
	a.t.Helper()
	ctx := context.Background()
	must[any](a.t)(old.Do(ctx, "client", "pause", limit.Milliseconds(), "write").Result())
	eventually(a.t, "the replica has everything", func() bool {
		return offset(old, "master_repl_offset") == offset(young, "slave_repl_offset")
	})
	must[any](a.t)(young.Do(ctx, "replicaof", "no", "one").Result())
	host, port, _ := strings.Cut(young.Options().Addr, ":")
	must[any](a.t)(old.Do(ctx, "replicaof", host, port).Result())
	must[any](a.t)(old.Do(ctx, "client", "unpause").Result())
}

// offset is how much of the replication stream a server says there is.
func offset(c *redis.Client, field string) string {
	for line := range strings.Lines(c.Info(context.Background(), "replication").Val()) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestPlannedFailoverBehindAnAddress has primary and replica change places behind an
// address that stays. Connections to the old primary live on unless they are killed.
func TestPlannedFailoverBehindAnAddress(t *testing.T) {
	for name, kill := range map[string]bool{"connections live on": false, "CLIENT KILL": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAnchorage(t)
			a.kill = kill
			u := startUpdates(t, a.clients(), slug(t)+"a", slug(t)+"b", slug(t)+"c")
			for i := range max(*failovers, 2) {
				u.makes(*perFailover)
				began := time.Now()
				a.swap([]func(old, young *redis.Client){a.byFailover, a.byReplicaOf}[i%2])
				u.works()
				t.Logf("every client works %v after the beginning", time.Since(began).Round(time.Millisecond))
			}
			u.makes(*perFailover)
			u.check(nothing)
		})
	}
}

// TestWaitersBehindAnAddressThatHasMoved has clients wait for a lock while primary and replica change places behind an
// address that stays: the connections on which they listen live on. When the lock is free they come in before any
// would have asked by itself.
func TestWaitersBehindAnAddressThatHasMoved(t *testing.T) {
	t.Parallel()
	ctx, a := within(t), newAnchorage(t)
	clients := append(a.clients(), a.clients()...)
	holder, name := clients[0], slug(t)
	l := must[*dlock.Lease](t)(holder.Mutex(name).Lock(ctx))
	var all sync.WaitGroup
	for i, c := range clients[1:] {
		all.Go(func() {
			l := must[*dlock.Lease](t)(c.Mutex(name).Lock(ctx))
			must[any](t)(nil, l.Unlock(ctx))
		})
		eventually(t, "it waits", func() bool {
			info, err := holder.Inspect(ctx, name)
			return err == nil && len(info.Waiters) > i
		})
	}
	a.swap(a.byReplicaOf)
	began := time.Now()
	must[any](t)(nil, l.Unlock(ctx))
	all.Wait()
	if took := time.Since(began); took >= leastPause {
		t.Errorf("they were in after %v", took)
	}
}
