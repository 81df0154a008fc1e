package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	_ "github.com/dlock-go/dlock/backend/all"
	"github.com/dlock-go/dlock/backend/etcd"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/internal/server"
)

// subjects makes each backend. A further one is a line here.
var subjects = map[string]func(testing.TB) Subject{
	"etcd":    etcdSubject,
	"file":    fileSubject,
	"memory":  memorySubject,
	"pg":      pgSubject,
	"redis":   redisSubject,
	"redlock": redlockSubject,
	"zk":      zkSubject,
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func redisSubject(t testing.TB) Subject {
	s, admin := startRedis(t)
	ttl := time.Second
	return Subject{
		Name: "redis", Version: s.Version(), TTL: ttl, Target: s.Addr(), Leased: true,
		URL:     func(addr string) string { return "redis://:" + Canary + "@" + addr },
		Residue: func(ctx context.Context) ([]string, error) { return redisResidue(ctx, admin) },
		Faults: append(append(append(ProcessFaults(), NetworkFaults(ttl)...), ServerFaults(s, false)...),
			Fault{ID: "F-11", Name: "server killed, restarted empty", Forgets: true, Inject: Lossy(s)},
			Fault{ID: "F-15", Name: "server full", Min: 0.5, Max: 3, Inject: redisFull(admin)},
			Fault{ID: "F-17", Name: "server busy with a script", Inject: redisBusy(admin, ttl)},
			Fault{ID: "F-25", Name: "subscriptions cut", Inject: redisDo(admin, "CLIENT", "KILL", "TYPE", "pubsub")},
			Fault{ID: "F-27", Name: "all connections killed", Inject: redisDo(admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")},
			Fault{ID: "F-31", Name: "scripts flushed", Inject: redisDo(admin, "SCRIPT", "FLUSH")},
			Fault{ID: "F-32", Name: "all keys flushed", Forgets: true, Inject: redisDo(admin, "FLUSHALL")},
			Fault{ID: "F-34", Name: "server's clock jumps past every lease", Forgets: true, Inject: Once(func(ctx context.Context) error { return redisExpire(ctx, admin) })},
			Fault{ID: "F-37", Name: "holders broken", Max: 1, Forgets: true, Inject: breakHolders(t, "redis://:"+Canary+"@"+s.Addr())},
		),
	}
}

// redlockSubject is a majority of three masters. What befalls one of them
// excuses nothing, not even that it forgets.
func redlockSubject(t testing.TB) Subject {
	one := new(oneOf)
	var admins []*redis.Client
	var addrs []string
	var version string
	for range 3 {
		s, admin := startRedis(t)
		one.all, admins, addrs, version = append(one.all, s), append(admins, admin), append(addrs, s.Addr()), s.Version()
	}
	ttl, any := time.Second, admins[0]
	return Subject{
		Name: "redlock", Version: version, TTL: ttl, Target: strings.Join(addrs, ","), Leased: true, Several: true,
		URL: func(addr string) string {
			return "redlock://:" + Canary + "@" + addr + "?dlock.skew=100ms&dlock.maxttl=" + ttl.String()
		},
		Residue: func(ctx context.Context) (left []string, err error) {
			for _, admin := range admins {
				keys, e := redisResidue(ctx, admin)
				left, err = append(left, keys...), errors.Join(err, e)
			}
			return left, err
		},
		Faults: append(append(append(ProcessFaults(), NetworkFaults(ttl)...), ServerFaults(one, false)...),
			Fault{ID: "F-11", Name: "a node killed, restarted empty", Inject: Lossy(one)},
			Fault{ID: "F-15", Name: "a node full", Min: 0.5, Max: 3, Inject: redisFull(any)},
			Fault{ID: "F-17", Name: "a node busy with a script", Inject: redisBusy(any, ttl)},
			Fault{ID: "F-25", Name: "subscriptions at a node cut", Inject: redisDo(any, "CLIENT", "KILL", "TYPE", "pubsub")},
			Fault{ID: "F-31", Name: "scripts of a node flushed", Inject: redisDo(any, "SCRIPT", "FLUSH")},
			Fault{ID: "F-32", Name: "all keys of a node flushed", Inject: redisDo(any, "FLUSHALL")},
			Fault{ID: "F-34", Name: "a node's clock jumps past every lease", Inject: Once(func(ctx context.Context) error { return redisExpire(ctx, any) })},
			Fault{ID: "F-37", Name: "holders broken", Max: 1, Forgets: true, Inject: breakHolders(t, "redlock://:"+Canary+"@"+strings.Join(addrs, ",")+"?dlock.skew=100ms&dlock.maxttl="+ttl.String()+"&dlock.ttl="+ttl.String())},
		),
	}
}

// oneOf is a server of several: each fault befalls the next of them.
type oneOf struct {
	all  []Server
	last int
}

func (o *oneOf) next() Server {
	o.last = (o.last + 1) % len(o.all)
	return o.all[o.last]
}

func (o *oneOf) Pause() error                { return o.next().Pause() }
func (o *oneOf) Kill() error                 { return o.next().Kill() }
func (o *oneOf) Stop() error                 { return o.next().Stop() }
func (o *oneOf) Resume() error               { return o.all[o.last].Resume() }
func (o *oneOf) Restart(keepData bool) error { return o.all[o.last].Restart(keepData) }

// startRedis runs a server, to which the administrator has a connection. What it
// has acknowledged survives its process.
func startRedis(t testing.TB) (*server.Server, *redis.Client) {
	logging.Disable()
	s := server.Start(t, server.Redis{AppendOnly: true, Args: []string{
		"--requirepass", Canary, "--maxmemory-policy", "noeviction",
	}})
	admin := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: Canary, DisableIdentity: true})
	t.Cleanup(func() { _ = admin.Close() })
	return s, admin
}

// breakHolders takes the locks that all want away from whoever has them, again and again,
// by the client of an operator.
func breakHolders(t testing.TB, url string) func(context.Context, *Victim) (func() error, error) {
	return breakAll(func() (*dlock.Client, error) { return dlock.Open(t.Context(), url, nil) })
}

func breakAll(open func() (*dlock.Client, error)) func(context.Context, *Victim) (func() error, error) {
	return func(ctx context.Context, v *Victim) (func() error, error) {
		operator, err := open()
		if err != nil {
			return nil, err
		}
		breaking, stop := context.WithCancel(ctx)
		result := make(chan error, 1)
		go func() {
			for backend.Sleep(breaking, v.TTL/50) {
				for _, name := range []string{plain, fenced} {
					if err := breakLock(breaking, operator, name); err != nil && breaking.Err() == nil {
						result <- err
						return
					}
				}
			}
			result <- nil
		}()
		return func() error {
			stop()
			return errors.Join(<-result, operator.Close(ctx))
		}, nil
	}
}

// breakLock breaks each hold that Inspect tells of.
func breakLock(ctx context.Context, operator *dlock.Client, name string) error {
	s, err := operator.Inspect(ctx, name)
	for _, h := range s.Holders {
		if e := operator.Break(ctx, name, h.Token); e != nil && !errors.Is(e, dlock.ErrNotHeld) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func redisDo(admin *redis.Client, args ...any) func(context.Context, *Victim) (func() error, error) {
	return Once(func(ctx context.Context) error { return admin.Do(ctx, args...).Err() })
}

// redisResidue lists what is more than the small keys that keep the tokens,
// and every key that would stay for ever. A lease that is over is nothing: of a
// worker that was killed it stays written until somebody wants the lock. That a
// node of several has been asked is written for as long as it keeps its data.
func redisResidue(ctx context.Context, admin *redis.Client) ([]string, error) {
	left, err := admin.PubSubChannels(ctx, "dlock:*").Result()
	if err != nil {
		return nil, err
	}
	const script = `local t, left = redis.call('TIME'), {}
		for _, k in ipairs(redis.call('KEYS', 'dlock:*')) do
			local over = k:sub(-1) == '}' and tonumber(redis.call('HGET', k, 'e') or 0) <= t[1] * 1000
			local due = redis.call('PTTL', k) == -1 or not over and k:sub(-2) ~= ':x'
			if due and k ~= 'dlock:boot' then left[#left + 1] = k end
		end return left`
	keys, err := admin.Eval(ctx, script, nil).StringSlice()
	return append(left, keys...), err
}

func redisFull(admin *redis.Client) func(context.Context, *Victim) (func() error, error) {
	return func(ctx context.Context, _ *Victim) (func() error, error) {
		heal := func() error { return admin.ConfigSet(context.Background(), "maxmemory", "0").Err() }
		return heal, admin.ConfigSet(ctx, "maxmemory", "1").Err()
	}
}

// redisBusy keeps the server from doing anything else for most of a lease.
func redisBusy(admin *redis.Client, ttl time.Duration) func(context.Context, *Victim) (func() error, error) {
	const script = `local t = redis.call('TIME'); local till = t[1] * 1000000 + t[2] + ARGV[1]
		repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] > till`
	return Once(func(ctx context.Context) error {
		err := admin.Eval(ctx, script, nil, (ttl / 2).Microseconds()).Err()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
}

// redisExpire ends every lease as a clock that jumps does: the expiry of each
// holder lies in the past from now on.
func redisExpire(ctx context.Context, admin *redis.Client) error {
	const script = `for _, k in ipairs(redis.call('KEYS', 'dlock:*}')) do
		if redis.call('HEXISTS', k, 'e') == 1 then redis.call('HSET', k, 'e', 1) end end return 1`
	return admin.Eval(ctx, script, nil).Err()
}

func etcdSubject(t testing.TB) Subject {
	s := server.Start(t, server.Etcd{Args: []string{"--unsafe-no-fsync"}})
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { admin.Close() })
	ttl := 2 * time.Second
	return Subject{
		Name: "etcd", Version: s.Version(), TTL: ttl, Target: s.Addr(), Leased: true,
		URL: func(addr string) string { return "etcd://" + addr },
		Residue: func(ctx context.Context) (keys []string, err error) {
			reply, err := admin.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return nil, err
			}
			for _, kv := range reply.Kvs {
				keys = append(keys, string(kv.Key))
			}
			return keys, nil
		},
		Faults: append(append(append(ProcessFaults(), NetworkFaults(ttl)...), ServerFaults(s, false)...),
			Fault{ID: "F-32", Name: "keys of holders deleted", Forgets: true, Inject: Once(func(ctx context.Context) error {
				_, err := admin.Delete(ctx, etcd.DefaultPrefix+"/l/", clientv3.WithPrefix())
				return err
			})},
			Fault{ID: "F-33", Name: "leases revoked", Forgets: true, Inject: Once(func(ctx context.Context) error { return revokeAll(ctx, admin) })},
			Fault{ID: "F-37", Name: "holders broken", Max: 1, Forgets: true, Inject: breakHolders(t, "etcd://"+s.Addr())},
			Fault{ID: "F-47", Name: "compacted and defragmented", Inject: Once(func(ctx context.Context) error { return etcdTidy(ctx, admin) })},
		),
	}
}

func revokeAll(ctx context.Context, admin *clientv3.Client) error {
	leases, err := admin.Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases {
		_, _ = admin.Revoke(ctx, l.ID) // one that is gone by now is as good
	}
	return nil
}

func etcdTidy(ctx context.Context, admin *clientv3.Client) error {
	reply, err := admin.Get(ctx, "any")
	if err != nil {
		return err
	}
	_, err1 := admin.Compact(ctx, reply.Header.Revision)
	_, err2 := admin.Defragment(ctx, admin.Endpoints()[0])
	return errors.Join(err1, err2)
}

// silence keeps the administrator's connection from telling of every fault.
type silence struct{}

func (silence) Printf(string, ...any) {}

func zkSubject(t testing.TB) Subject {
	const root = "/dlock"
	s := server.Start(t, server.ZooKeeper{SuperPassword: "super"})
	admin, _, err := gozk.Connect([]string{s.Addr()}, time.Minute, gozk.WithLogger(silence{}), gozk.WithDialer(server.DialImpatiently))
	must(t, err)
	t.Cleanup(admin.Close)
	must(t, admin.AddAuth("digest", []byte("super:super")))
	ttl := time.Second
	return Subject{
		Name: "zk", Version: s.Version(), TTL: ttl, Target: s.Addr(), Leased: true,
		URL:     func(addr string) string { return "zk://user:" + Canary + "@" + addr + root },
		Residue: func(context.Context) ([]string, error) { return zkNodes(admin, root) },
		Faults: append(append(append(ProcessFaults(), NetworkFaults(ttl)...), ServerFaults(s, false)...),
			Fault{ID: "F-32", Name: "nodes of holders deleted", Forgets: true, Inject: Once(func(context.Context) error {
				nodes, err := zkNodes(admin, root)
				for _, node := range nodes {
					_ = admin.Delete(node, -1) // one that is gone by now is as good
				}
				return err
			})},
			Fault{ID: "F-37", Name: "holders broken", Max: 1, Forgets: true, Inject: breakHolders(t, "zk://user:"+Canary+"@"+s.Addr()+root)},
		),
	}
}

// zkNodes lists the nodes in all queues.
func zkNodes(admin *gozk.Conn, root string) (nodes []string, err error) {
	children := func(path string) (names []string) {
		e := server.WhenConnected(gozk.ErrNoServer, func() (e error) {
			names, _, e = admin.Children(path)
			return e
		})
		if !errors.Is(e, gozk.ErrNoNode) {
			err = errors.Join(err, e)
		}
		return names
	}
	for _, lock := range children(root) {
		for _, node := range children(root + "/" + lock) {
			nodes = append(nodes, root+"/"+lock+"/"+node)
		}
	}
	return nodes, err
}

func pgSubject(t testing.TB) Subject {
	s := server.Start(t, server.Postgres{})
	ask := func(ctx context.Context, sql string) ([]string, error) {
		c, err := pgx.Connect(ctx, "postgres://postgres@"+s.Addr()+"/postgres?sslmode=disable")
		if err != nil {
			return nil, err
		}
		defer c.Close(ctx)
		rows, err := c.Query(ctx, sql)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	const theirs = ` FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
	ttl := 2 * time.Second
	network := NetworkFaults(ttl)
	for i := range network { // with the connection goes the lock, and both ends learn of it at once
		network[i].Forgets = network[i].ID == "F-22" || network[i].ID == "F-27" || network[i].ID == "F-29"
	}
	return Subject{
		Name: "pg", Version: s.Version(), TTL: ttl, Target: s.Addr(), Leased: true, Queues: true,
		URL: func(addr string) string {
			return "postgres://postgres:" + Canary + "@" + addr + "/postgres?sslmode=disable"
		},
		Residue: func(ctx context.Context) ([]string, error) { return ask(ctx, "SELECT query"+theirs) },
		Faults: append(append(append(ProcessFaults(), network...), ServerFaults(s, true)...),
			Fault{ID: "F-33", Name: "sessions terminated", Forgets: true, Inject: Once(func(ctx context.Context) error {
				_, err := ask(ctx, "SELECT pg_terminate_backend(pid)::text"+theirs)
				return err
			})},
		),
	}
}

func fileSubject(t testing.TB) Subject {
	dir := t.TempDir()
	return Subject{
		Name: "file", Version: "1", TTL: time.Second,
		URL: func(string) string { return "file://" + dir },
		Faults: append(ProcessFaults(),
			Fault{ID: "F-32", Name: "lock files deleted", Forgets: true, Inject: Once(func(context.Context) error {
				files, err := filepath.Glob(filepath.Join(dir, "*"))
				for _, f := range files {
					_ = os.Remove(f) // one that is gone by now is as good
				}
				return err
			})},
		),
	}
}

// memorySubject is a server in this process, with faults of its own making.
func memorySubject(testing.TB) Subject {
	s := memory.NewServer()
	var mu sync.Mutex
	backends := make(map[int]*memory.Backend)
	at := func(worker int) *memory.Backend {
		mu.Lock()
		defer mu.Unlock()
		return backends[worker]
	}
	of := func(v *Victim) *memory.Backend { return at(v.Job.Worker) }
	ttl := time.Second
	frozen := func(context.Context, *Victim) (func() error, error) {
		s.Freeze()
		return func() error { s.Thaw(); return nil }, nil
	}
	return Subject{
		Name: "memory", Version: "1", TTL: ttl, Leased: true,
		Cut:  func(worker int) { at(worker).Cut() },
		Heal: func(worker int) { at(worker).Heal() },
		Here: func(worker int) (*dlock.Client, error) {
			mu.Lock()
			defer mu.Unlock()
			backends[worker] = memory.New(s)
			return dlock.New(backends[worker], &dlock.Options{TTL: ttl})
		},
		Residue: func(context.Context) (left []string, err error) {
			if n := s.Names(); n > 0 {
				left = append(left, fmt.Sprintf("%d names", n))
			}
			return left, nil
		},
		Faults: []Fault{
			{ID: "F-12", Name: "server stopped for less than a lease", Min: 0.1, Max: 0.5, Inject: frozen},
			{ID: "F-13", Name: "server stopped past the lease", Min: 1.2, Max: 3, Inject: frozen},
			{ID: "F-20", Name: "both ways dark", Min: 0.5, Max: 3, Inject: func(_ context.Context, v *Victim) (func() error, error) {
				of(v).Cut()
				return func() error { of(v).Heal(); return nil }, nil
			}},
			{ID: "F-22", Name: "a reply lost", Min: 0, Max: 0.1, Inject: func(_ context.Context, v *Victim) (func() error, error) {
				of(v).DropReply()
				return nil, nil
			}},
			{ID: "F-29", Name: "a call refused", Min: 0, Max: 0.1, Inject: func(_ context.Context, v *Victim) (func() error, error) {
				of(v).FailNext(dlock.ErrUnavailable)
				return nil, nil
			}},
			{ID: "F-32", Name: "all holds forgotten", Forgets: true, Inject: Once(func(context.Context) error { s.Wipe(); return nil })},
			{ID: "F-37", Name: "a holder put out", Forgets: true, Inject: Once(func(context.Context) error {
				s.Evict([]string{plain, fenced}[rand.IntN(2)])
				return nil
			})},
			{ID: "F-37", Name: "holders broken", Max: 1, Forgets: true, Inject: breakAll(func() (*dlock.Client, error) {
				return dlock.New(memory.New(s), nil)
			})},
		},
	}
}
