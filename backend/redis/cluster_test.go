package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// silence is after how long the nodes of a test replace one of them.
const silence = 2 * time.Second

// startCluster also returns a client to look at the cluster with.
func startCluster(t testing.TB, kind server.Redis) (*server.Cluster, *redis.ClusterClient) {
	t.Helper()
	c := server.StartCluster(t, kind, silence)
	return c, adminOf(t, c)
}

// sharedCluster is that of the tests that do it no harm. The first of them starts it.
var sharedCluster lazyCluster

type lazyCluster struct {
	once    sync.Once
	cluster *server.Cluster
	err     error
}

// use also returns a client to look at the cluster with.
func (l *lazyCluster) use(t testing.TB) (*server.Cluster, *redis.ClusterClient) {
	t.Helper()
	l.once.Do(func() { l.cluster, l.err = server.NewCluster(server.Redis{}, limit) }) // nobody is replaced
	must[any](t)(nil, l.err)
	return l.cluster, adminOf(t, l.cluster)
}

func (l *lazyCluster) close() error {
	if l.cluster == nil {
		return nil
	}
	return l.cluster.Close()
}

func adminOf(t testing.TB, c *server.Cluster) *redis.ClusterClient {
	admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), DisableIdentity: true})
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

func clusterURL(c *server.Cluster) string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// slotOf is where a cluster keeps a key.
func slotOf(t testing.TB, c *redis.ClusterClient, key string) int64 {
	t.Helper()
	return must[int64](t)(c.ClusterKeySlot(context.Background(), key).Result())
}

// nodeOf is the node that has a lock now.
func nodeOf(t testing.TB, c *redis.ClusterClient, name string) *redis.Client {
	t.Helper()
	return must[*redis.Client](t)(c.MasterForKey(context.Background(), mainKey(name)))
}

func TestOneSlotForEachLock(t *testing.T) {
	t.Parallel()
	_, admin := sharedCluster.use(t)
	slots := make(map[int64]bool)
	for _, name := range []string{"a", "{a}b", "}{", "{}", "{", "}", "a{b}{c}", "{{a}}", "\x00{\xff}"} {
		main := mainKey(name)
		slot := slotOf(t, admin, main)
		slots[slot] = true
		keys := []string{main + shardChannel + "client"}
		for _, suffix := range suffixes {
			keys = append(keys, main+suffix)
		}
		for _, key := range keys {
			if got := slotOf(t, admin, key); got != slot {
				t.Errorf("%q: %q is in slot %d, the others in %d", name, key, got, slot)
			}
		}
	}
	if len(slots) < 5 {
		t.Errorf("all those names share %d slots", len(slots))
	}
}

// TestClusterHandsOver has clients wait for locks all over the cluster. Each
// subscribes on the node that has the lock, and is told: it does not ask.
func TestClusterHandsOver(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, admin := startCluster(t, server.Redis{})
	a, b := openURL(t, clusterURL(c), nil), openURL(t, clusterURL(c), nil)
	const locks = 30
	done := make(chan error, locks)
	held := make([]*dlock.Lease, locks)
	for i := range locks {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		held[i] = must[*dlock.Lease](t)(a.Mutex(name).Lock(ctx))
		go func() { done <- turns(ctx, b.Mutex(name), 1) }()
		node := nodeOf(t, admin, name)
		eventually(t, "it waits where the lock is", func() bool {
			return heardAt(ctx, node, name) &&
				node.ZCard(ctx, mainKey(name)+":q").Val() == 1
		})
	}
	before := clusterScripts(t, c)
	for _, l := range held {
		must[any](t)(nil, l.Unlock(ctx))
	}
	for range locks {
		must[any](t)(nil, <-done)
	}
	if n := clusterScripts(t, c) - before; n > 3*locks && !tooOld() {
		t.Errorf("%d commands for %d hand-overs", n, locks)
	}
}

func clusterScripts(t testing.TB, c *server.Cluster) (sum int64) {
	for _, s := range c.Masters {
		sum += scriptsOf(t, s)
	}
	return sum
}

// TestClusterForgetsIdleSubscriptions waits for many locks, one after another.
func TestClusterForgetsIdleSubscriptions(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, admin := sharedCluster.use(t)
	a, b := openURL(t, clusterURL(c), nil), openURL(t, clusterURL(c), nil)
	const locks = maxIdle + 50
	for i := range locks {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		l := must[*dlock.Lease](t)(a.Mutex(name).Lock(ctx))
		got := make(chan *dlock.Lease)
		go func() { got <- must[*dlock.Lease](t)(b.Mutex(name).Lock(ctx)) }()
		eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey(name)+":q").Val() == 1 })
		must[any](t)(nil, l.Unlock(ctx))
		must[any](t)(nil, (<-got).Unlock(ctx))
	}
	eventually(t, "most subscriptions have ended", func() bool {
		n := 0
		for _, s := range c.Masters {
			n += len(plainClient(t, s).PubSubShardChannels(ctx, strings.TrimSuffix(mainKey(t.Name()), "}")+"*").Val())
		}
		return n <= locks-maxIdle && (n > 0 || tooOld())
	})
}

// clusterUser is the user that the package documentation proposes.
func clusterUser() string {
	if tooOld() {
		return singleUser + "+cluster +asking"
	}
	return singleUser + "+pubsub|numsub +cluster|slots +asking +spublish +pubsub|shardnumsub +ssubscribe +sunsubscribe"
}

// tooOld reports that servers do not know of messages for one shard of a cluster.
func tooOld() bool { return strings.HasPrefix(shared.Version(), "6.") }

// heardAt reports whether somebody listens for a lock on its node. No one does where
// that is not known.
func heardAt(ctx context.Context, node *redis.Client, name string) bool {
	return tooOld() || len(node.PubSubShardChannels(ctx, mainKey(name)+":c:*").Val()) == 1
}

const singleUser = "dlock on >secret resetkeys ~dlock:* resetchannels &dlock:* " +
	"-@all +hello +auth +ping +select +client|setname +info +eval +evalsha " +
	"+time +exists +hmget +hset +hdel +pexpire +zadd +zrem +zcard +zscore " +
	"+zrank +zrange +zrevrange +zrangebyscore +zremrangebyscore " +
	"+publish +subscribe +unsubscribe "

func TestClusterUser(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, admin := startCluster(t, server.Redis{Args: append([]string{"--user"}, strings.Fields(clusterUser())...)})
	url := strings.Replace(clusterURL(c), "://", "://dlock:secret@", 1)
	log := new(warnings)
	a, b := openURL(t, url, &dlock.Options{Logger: log.logger()}), openURL(t, url, nil)
	l := must[*dlock.Lease](t)(a.Mutex(t.Name()).Lock(ctx))
	got := make(chan *dlock.Lease)
	go func() { got <- must[*dlock.Lease](t)(b.Mutex(t.Name()).Lock(ctx)) }()
	eventually(t, "it waits for a message", func() bool {
		return heardAt(ctx, nodeOf(t, admin, t.Name()), t.Name()) && admin.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1
	})
	must[any](t)(nil, l.Unlock(ctx))
	must[any](t)(nil, (<-got).Unlock(ctx))
	if s := log.String(); s != "" && !tooOld() {
		t.Errorf("warnings: %s", s)
	}
	_, err := dlock.Open(ctx, strings.Replace(url, "secret", "wrong", 1), nil)
	if !errors.Is(err, dlock.ErrAuth) {
		t.Errorf("wrong password: %v", err)
	}
}

// TestClusterWithoutMessages has waiters that may not subscribe, or cannot, on a server
// that is too old for it: they ask, without having waited to be told, and the log says so
// once.
func TestClusterWithoutMessages(t *testing.T) {
	unknown := []string{"--rename-command", "ssubscribe", ""}
	if tooOld() {
		unknown = nil
	}
	t.Run("unknown", func(t *testing.T) { withoutMessages(t, unknown, "") })
	user := strings.Replace(clusterUser(), " +ssubscribe", "", 1)
	forbidden := append([]string{"--user"}, strings.Fields(user)...)
	t.Run("forbidden", func(t *testing.T) { withoutMessages(t, forbidden, "dlock:secret@") })
}

func withoutMessages(t *testing.T, args []string, login string) {
	t.Parallel()
	ctx := within(t)
	c, admin := startCluster(t, server.Redis{Args: args})
	log := new(warnings)
	url := strings.Replace(clusterURL(c), "://", "://"+login, 1)
	a, b := openURL(t, url, nil), openURL(t, url, &dlock.Options{Logger: log.logger()})
	for i := range 10 {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		l := must[*dlock.Lease](t)(a.Mutex(name).Lock(ctx))
		got := make(chan *dlock.Lease)
		go func() { got <- must[*dlock.Lease](t)(b.Mutex(name).Lock(ctx)) }()
		eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey(name)+":q").Val() == 1 })
		must[any](t)(nil, l.Unlock(ctx))
		must[any](t)(nil, (<-got).Unlock(ctx))
	}
	if n := strings.Count(log.String(), "by polling"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

// TestStuckShard stops one master for longer than a lease: locks on the others
// live on.
func TestStuckShard(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	ctx := within(t)
	const locks = 300
	for _, s := range append(c.Masters[:3:3], c.Replicas...) { // no replica takes the place of the one that is stuck
		must[string](t)(plainClient(t, s).ConfigSet(ctx, "cluster-node-timeout", "120000").Result())
	}
	client := openURL(t, clusterURL(c), &dlock.Options{TTL: 10 * time.Second})
	stuck := c.Masters[0]
	var safe, doomed []*dlock.Lease
	for i := range locks {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		l := must[*dlock.Lease](t)(client.Mutex(name).Lock(ctx))
		if nodeOf(t, admin, name).Options().Addr == stuck.Addr() {
			doomed = append(doomed, l)
		} else {
			safe = append(safe, l)
		}
	}
	must[any](t)(nil, stuck.Pause())
	for _, l := range doomed {
		select {
		case <-l.Done():
		case <-ctx.Done():
			t.Fatal("a lock on a node that is stuck is not lost")
		}
	}
	must[any](t)(nil, stuck.Resume())
	for _, l := range safe {
		if err := l.Err(); err != nil {
			t.Fatalf("of %d locks on other nodes one is lost: %v", len(safe), err)
		}
		must[any](t)(nil, l.Unlock(ctx))
	}
}

// TestStuckShardHoldsNobodyUp renews thousands of locks on a node that does not
// answer: they are given up together and not one after another.
func TestStuckShardHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	p := newPipeline(plainClient(t, s), 0)
	b := New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}}), nil)
	t.Cleanup(func() { _ = b.client.Close() })
	must[any](t)(nil, s.Pause())
	b.transport = p
	const soon = 30 * time.Second
	part, request := make([]*backend.Hold, 3*soon/grace), backend.Request{Name: t.Name(), TTL: time.Second}
	for i := range part {
		h := &backend.Hold{Request: request}
		h.State = &holdState{id: "w1000:client:1.proof", hold: h}
		part[i] = h
	}
	ctx, cancel := context.WithTimeout(t.Context(), replyTimeout(time.Second)/2)
	defer cancel()
	renewed := make(chan int, 1)
	go func() {
		var n atomic.Int64
		b.Renew(ctx, part, func(*backend.Hold, error) { n.Add(1) })
		renewed <- int(n.Load())
	}()
	select {
	case n := <-renewed:
		if n != len(part) {
			t.Errorf("%d of %d reported", n, len(part))
		}
	case <-time.After(soon):
		t.Error("they are waited for one after another")
	}
	must[any](t)(nil, s.Resume())
}

// BenchmarkCluster takes locks that nobody else wants all over a cluster,
// beside the floor.
func BenchmarkCluster(b *testing.B) {
	c, admin := startCluster(b, server.Redis{})
	for _, goroutines := range []int{1, 64} {
		for _, kind := range []struct {
			name string
			run  cycle
		}{{"floor", floorCycleOn(admin)}, {"dlock", lockCycleOn(openURL(b, clusterURL(c), nil))}} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", kind.name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				client, masters, replicas := cpuTime(), timeOfAll(b, c.Masters), timeOfAll(b, c.Replicas)
				b.ResetTimer()
				spread(b, goroutines, func(ctx context.Context, i int) error {
					return kind.run(ctx, fmt.Sprintf("cluster/%s/%d", kind.name, i))
				})
				b.StopTimer()
				perOp := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N) }
				b.ReportMetric(perOp(cpuTime()-client), "client-ns/op")
				b.ReportMetric(perOp(timeOfAll(b, c.Masters)-masters), "masters-ns/op")
				b.ReportMetric(perOp(timeOfAll(b, c.Replicas)-replicas), "replicas-ns/op")
			})
		}
	}
}

func timeOfAll(b *testing.B, servers []*server.Server) (sum time.Duration) {
	for _, s := range servers {
		sum += timeOf(b, s)
	}
	return sum
}

// A recorder notes the names of the commands that a client sends.
type recorder struct {
	mu    sync.Mutex
	names map[string]bool
}

func (*recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.mu.Lock()
		r.names[cmd.Name()] = true
		r.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (*recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRedirectIsFollowedAtOnce has a client be wrong about who has the slots. What is
// redirected goes where it belongs, and no other node is asked anything before that: one
// that hangs would hold up all that are redirected.
func TestRedirectIsFollowedAtOnce(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	c, admin := sharedCluster.use(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		DisableIdentity: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: clusterSlots - 1, Nodes: []redis.ClusterNode{{Addr: c.Masters[0].Addr()}}}}, nil
		},
	})
	defer client.Close()
	sent := &recorder{names: make(map[string]bool)}
	client.OnNewNode(func(node *redis.Client) { node.AddHook(sent) })
	l := must[*dlock.Lease](t)(newClient(t, client, nil).Mutex(nameOn(t, admin, c.Masters[1])).TryLock(ctx))
	must[any](t)(nil, l.Unlock(ctx))
	sent.mu.Lock()
	defer sent.mu.Unlock()
	if sent.names["command"] || !sent.names["evalsha"] {
		t.Errorf("a redirect was followed with %v", sent.names)
	}
}
