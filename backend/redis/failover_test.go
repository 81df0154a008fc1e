package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/canary"
	"github.com/dlock-go/dlock/internal/server"
)

// loadTTL is the lease of locks that must not be lost for a slow machine.
const loadTTL = 3 * time.Second

func sentinelURL(w *server.Watched) string {
	var hosts []string
	for _, s := range w.Sentinels {
		hosts = append(hosts, s.Addr())
	}
	return "redis+sentinel://" + strings.Join(hosts, ",") + "/" + server.PrimaryName
}

// startWatched has a primary replaced that is silent for so long. It also returns a client
// to look at the primary with. Where the primary is replaced by command, that is limit: on
// a busy machine the new one may be silent for longer than silence, and they would change
// places again.
func startWatched(t testing.TB, replicas int, silence time.Duration) (*server.Watched, *redis.Client) {
	t.Helper()
	w := server.StartWatched(t, replicas, server.Redis{}, silence)
	var hosts []string
	for _, s := range w.Sentinels {
		hosts = append(hosts, s.Addr())
	}
	admin := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: server.PrimaryName, SentinelAddrs: hosts, DisableIdentity: true,
	})
	t.Cleanup(func() { _ = admin.Close() })
	return w, admin
}

// promoted waits until s takes writes, demoted until it takes none.
func promoted(t testing.TB, s *server.Server) { role(t, s, "master") }
func demoted(t testing.TB, s *server.Server)  { role(t, s, "slave") }

func role(t testing.TB, s *server.Server, want string) {
	t.Helper()
	c := plainClient(t, s)
	eventually(t, "it is a "+want, func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "role:"+want)
	})
}

func TestSentinelFailoverUnderWork(t *testing.T) {
	t.Parallel()
	w, admin := startWatched(t, 1, silence)
	url := sentinelURL(w)
	c := startLoad(t, url, loadTTL, false, "a", "b", "c")
	c.works()
	began := time.Now()
	must[any](t)(nil, w.Primary.Kill())
	promoted(t, w.Replicas[0])
	failover := time.Since(began)
	c.works()
	t.Logf("all clients work %v after the kill, which the failover took %v of; TTL %v", time.Since(began), failover, loadTTL)
	must[any](t)(nil, w.Primary.Restart(true))
	c.works()
	c.end()
	c.checkCounts(url, admin)
}

// TestSubscriptionsFollowTheMaster has Sentinel swap a master that is well: it
// lives on as a replica, and the connections to it could.
func TestSubscriptionsFollowTheMaster(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	w, admin := startWatched(t, 1, limit)
	a, b := openURL(t, sentinelURL(w), nil), openURL(t, sentinelURL(w), nil)
	l := must[*dlock.Lease](t)(a.Mutex(t.Name()).Lock(ctx))
	got := make(chan *dlock.Lease, 1)
	go func() { got <- must[*dlock.Lease](t)(b.Mutex(t.Name()).Lock(ctx)) }()
	eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1 })
	replica := plainClient(t, w.Replicas[0])
	eventually(t, "the replica knows", func() bool { return replica.ZCard(ctx, mainKey(t.Name())+":q").Val() == 1 })

	sentinel := redis.NewSentinelClient(&redis.Options{Addr: w.Sentinels[0].Addr()})
	t.Cleanup(func() { _ = sentinel.Close() })
	must[string](t)(sentinel.Failover(ctx, server.PrimaryName).Result())
	promoted(t, w.Replicas[0])
	demoted(t, w.Primary) // until then it may grant what is not granted
	must[any](t)(nil, l.Unlock(ctx))
	next := <-got
	eventually(t, "it listens where it would be told", func() bool {
		return len(replica.PubSubChannels(ctx, channelPrefix+"*").Val()) > 0
	})
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	must[any](t)(nil, next.Unlock(ctx))
}

func TestClusterFailoverUnderWork(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	url := clusterURL(c)
	var names []string
	for _, s := range c.Masters {
		names = append(names, nameOn(t, admin, s))
	}
	workers := startLoad(t, url, loadTTL, false, names...)
	workers.works()
	began := time.Now()
	must[any](t)(nil, c.Masters[0].Kill())
	promoted(t, c.Replicas[0])
	failover := time.Since(began)
	workers.works()
	t.Logf("all clients work %v after the kill, which the failover took %v of; TTL %v", time.Since(began), failover, loadTTL)
	must[any](t)(nil, c.Masters[0].Restart(true))
	must[any](t)(nil, c.Await())
	workers.works()
	workers.end()
	admin.ReloadState(context.Background())
	workers.checkCounts(url, admin)
}

// nameOn is a name whose lock the given node has.
func nameOn(t testing.TB, c *redis.ClusterClient, s *server.Server) string {
	t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		if nodeOf(t, c, name).Options().Addr == s.Addr() {
			return name
		}
	}
}

// A move takes one slot from one master to another.
type move struct {
	t        *testing.T
	slot     int64
	from, to *redis.Client
	masters  []*redis.Client
}

func newMove(t *testing.T, c *server.Cluster, slot int64, from, to *server.Server) *move {
	m := &move{t: t, slot: slot, from: plainClient(t, from), to: plainClient(t, to)}
	for _, s := range c.Masters {
		m.masters = append(m.masters, plainClient(t, s))
	}
	return m
}

func (m *move) setSlot(c *redis.Client, args ...any) {
	m.t.Helper()
	must[any](m.t)(c.Do(m.t.Context(), append([]any{"cluster", "setslot", m.slot}, args...)...).Result())
}

func (m *move) id(c *redis.Client) string {
	m.t.Helper()
	return must[string](m.t)(c.ClusterMyID(m.t.Context()).Result())
}

func (m *move) begin() {
	m.setSlot(m.to, "importing", m.id(m.from))
	m.setSlot(m.from, "migrating", m.id(m.to))
}

// take moves keys that are there.
func (m *move) take(keys ...string) {
	m.t.Helper()
	host, port, _ := strings.Cut(m.to.Options().Addr, ":")
	args := []any{"migrate", host, port, "", 0, 5000, "keys"}
	for _, k := range keys {
		args = append(args, k)
	}
	must[any](m.t)(m.from.Do(m.t.Context(), args...).Result())
}

// rest moves what is left, and ends the move.
func (m *move) end() {
	m.t.Helper()
	for {
		keys := must[[]string](m.t)(m.from.ClusterGetKeysInSlot(m.t.Context(), int(m.slot), 100).Result())
		if len(keys) == 0 {
			break
		}
		m.take(keys...)
	}
	for _, c := range append([]*redis.Client{m.to, m.from}, m.masters...) {
		m.setSlot(c, "node", m.id(m.to))
	}
}

// expiry is when a node that may not have the slot yet says that a hold ends.
func expiry(t *testing.T, node *redis.Client, name string) int64 {
	var e *redis.StringCmd
	_, _ = node.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Do(t.Context(), "asking")
		e = p.HGet(t.Context(), mainKey(name), "e")
		return nil
	})
	n, _ := strconv.ParseInt(e.Val(), 10, 64)
	return n
}

// TestSlotMovesUnderItsLock moves the slot of a lock that is held twice and
// waited for, slowly: both halves take longer than the lease.
func TestSlotMovesUnderItsLock(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	ctx := within(t)
	from, to := c.Masters[0], c.Masters[1]
	name := nameOn(t, admin, from)
	key := mainKey(name)
	ttl := 2 * loadTTL
	a, b := openURL(t, clusterURL(c), &dlock.Options{TTL: ttl}), openURL(t, clusterURL(c), &dlock.Options{TTL: ttl})
	m := a.Mutex(name)
	l := must[*dlock.Lease](t)(m.Lock(ctx))
	nested := must[*dlock.Lease](t)(m.Lock(l.Context(ctx)))
	got := make(chan *dlock.Lease, 1)
	go func() { got <- must[*dlock.Lease](t)(b.Mutex(name).Lock(ctx)) }()
	eventually(t, "it waits", func() bool { return admin.ZCard(ctx, key+":q").Val() == 1 })

	mv := newMove(t, c, slotOf(t, admin, key), from, to)
	outlives := func(node *redis.Client) {
		t.Helper()
		end := time.Now().Add(2 * ttl).UnixMilli()
		eventually(t, "the hold is kept alive", func() bool { return l.Err() != nil || expiry(t, node, name) > end })
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
	}
	mv.begin()
	outlives(mv.from)
	mv.take(key)
	outlives(mv.to)
	mv.end()
	eventually(t, "the waiter listens on the other node", func() bool {
		return heardAt(ctx, mv.to, name)
	})
	if n := mv.to.HGet(ctx, key, "n").Val(); n != "2" {
		t.Errorf("entered %s times, want 2", n)
	}
	must[any](t)(nil, nested.Unlock(ctx))
	must[any](t)(nil, l.Unlock(ctx))
	next := <-got
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	must[any](t)(nil, next.Unlock(ctx))
	if left := must[[]string](t)(mv.from.Keys(ctx, prefix+"*").Result()); len(left) > 0 {
		t.Errorf("left on the old node: %v", left)
	}
}

// TestReaderOutlivesAMove is the same for a shared hold.
func TestReaderOutlivesAMove(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	ctx := within(t)
	name := nameOn(t, admin, c.Masters[2])
	ttl := 2 * loadTTL
	l := must[*dlock.Lease](t)(openURL(t, clusterURL(c), &dlock.Options{TTL: ttl}).RWMutex(name).RLock(ctx))
	mv := newMove(t, c, slotOf(t, admin, mainKey(name)), c.Masters[2], c.Masters[0])
	mv.begin()
	end := time.Now().Add(3 * ttl)
	readers := mainKey(name) + ":r"
	eventually(t, "the hold is kept alive", func() bool {
		last := mv.from.ZRevRangeWithScores(ctx, readers, 0, 0).Val()
		return len(last) == 1 && int64(last[0].Score) > end.UnixMilli()
	})
	mv.end()
	must[any](t)(nil, l.Unlock(ctx))
}

// TestDowngradeWhileASlotMoves asks for a downgrade while the slot of the lock moves, which the
// servers refuse (TRYAGAIN): the hold is still exclusive, and is kept alive as that.
func TestDowngradeWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	ctx := within(t)
	name := nameOn(t, admin, c.Masters[0])
	ttl := 2 * loadTTL
	l := must[*dlock.Lease](t)(openURL(t, clusterURL(c), &dlock.Options{TTL: ttl}).RWMutex(name).Lock(ctx))
	mv := newMove(t, c, slotOf(t, admin, mainKey(name)), c.Masters[0], c.Masters[1])
	mv.begin()
	short, cancel := context.WithTimeout(ctx, ttl/3)
	defer cancel()
	if err := l.Downgrade(short); err == nil {
		t.Fatal("the downgrade was not refused")
	}
	end := time.Now().Add(2 * ttl).UnixMilli()
	eventually(t, "the hold is kept alive", func() bool { return l.Err() != nil || expiry(t, mv.from, name) > end })
	if err := l.Err(); err != nil {
		t.Errorf("the server has the hold, and its client says: %v", err)
	}
	mv.end()
	if err := l.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestSlotMovesUnderWork moves a slot to and fro while clients work with it.
func TestSlotMovesUnderWork(t *testing.T) {
	t.Parallel()
	c, admin := startCluster(t, server.Redis{})
	name := nameOn(t, admin, c.Masters[0])
	slot := slotOf(t, admin, mainKey(name))
	url := clusterURL(c)
	workers := startLoad(t, url, loadTTL, true, name)
	workers.works()
	for i := range 6 {
		mv := newMove(t, c, slot, c.Masters[i%2], c.Masters[1-i%2])
		mv.begin()
		mv.end()
		workers.works()
	}
	workers.end()
	admin.ReloadState(context.Background())
	workers.checkCounts(url, admin)
}

// A Sentinel's refusal reaches the caller and, as a warning, the logger.
func TestSentinelsThatRefuse(t *testing.T) {
	t.Parallel()
	w, _ := startWatched(t, 0, silence)
	var said warnings
	c := openURL(t, sentinelURL(w), &dlock.Options{Logger: said.logger()})
	for _, s := range w.Sentinels {
		must[any](t)(plainClient(t, s).Do(within(t), "acl", "setuser", "default", "-sentinel").Result())
	}
	must[any](t)(plainClient(t, w.Primary).Do(within(t), "client", "kill", "type", "normal", "skipme", "yes").Result())
	eventually(t, "the client asks a Sentinel", func() bool {
		_, err := c.Mutex(t.Name()).TryLock(within(t))
		return errors.Is(err, dlock.ErrAuth)
	})
	if text := said.String(); !strings.Contains(text, `level=WARN msg="dlock: redis: sentinel: `) || !strings.Contains(text, "NOPERM") {
		t.Errorf("the log says: %s", text)
	}
	_, err := dlock.Open(within(t), sentinelURL(w), nil)
	if !errors.Is(err, dlock.ErrAuth) {
		t.Errorf("Sentinels that refuse: %v", err)
	}
}

// TestSentinelsThatKnowNoMaster has a Lock ask while Sentinels know none, as where they were started again
// without their file: it is had when they are told.
func TestSentinelsThatKnowNoMaster(t *testing.T) {
	t.Parallel()
	w, _ := startWatched(t, 0, silence)
	log, logged := canary.Log()
	c := openURL(t, sentinelURL(w), &dlock.Options{Logger: log})
	host, port, err := net.SplitHostPort(w.Primary.Addr())
	must[any](t)(nil, err)
	for _, s := range w.Sentinels {
		must[any](t)(plainClient(t, s).Do(within(t), "sentinel", "remove", server.PrimaryName).Result())
	}
	must[any](t)(plainClient(t, w.Primary).Do(within(t), "client", "kill", "type", "normal", "skipme", "yes").Result())
	locked := make(chan error, 1)
	go func() {
		_, err := c.Mutex(t.Name()).Lock(within(t))
		locked <- err
	}()
	eventually(t, "no Sentinel has told the client", func() bool { return strings.Contains(logged(), masterless) })
	for _, s := range w.Sentinels {
		must[any](t)(plainClient(t, s).Do(within(t), "sentinel", "monitor", server.PrimaryName, host, port, 2).Result())
	}
	if err := <-locked; err != nil {
		t.Error(err)
	}
}
