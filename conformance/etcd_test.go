package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/etcd"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// etcdHarness spares the disk: what a killed server has written is kept anyway.
func etcdHarness(t testing.TB) conformance.Harness {
	return harnessOfEtcd(t, "etcd", server.Etcd{Args: []string{"--unsafe-no-fsync"}})
}

func oldEtcdHarness(t testing.TB) conformance.Harness {
	h := harnessOfEtcd(t, "etcd-old", server.Etcd{Distribution: true})
	h.MostHolds = 1000 // the client is the same
	return h
}

func harnessOfEtcd(t testing.TB, name string, kind server.Etcd) conformance.Harness {
	s := server.Start(t, kind)
	e := &etcdUnderTest{
		proxied: proxied{target: s.Addr(), framing: faultnet.HTTP2},
		server:  s,
		admin:   etcdClient(t, s.Addr()),
	}
	return conformance.Harness{
		Name:     name,
		Version:  s.Version(),
		Scheme:   "etcd",
		URL:      "etcd://" + s.Addr(),
		TTL:      *ttl,
		Leased:   true,
		Open:     e.open,
		Evict:    e.evict,
		Ops:      e.requests, // of watches and of leases too
		Conns:    e.connections,
		Waiting:  e.waiting,
		Residue:  e.residue,
		State:    e.state,
		Restart:  e.restart,
		Durable:  true,
		BadLogin: badEtcdLogin(t, kind),
		Nowhere:  "etcd://127.0.0.1:1",
		Borrow:   e.borrow,
		Optional: []string{"BatchReleaser", "Breaker", "Downgrader", "Expirer", "Inspector", "Pinger", "Renewer", "Transferer"},
	}
}

type etcdUnderTest struct {
	proxied
	server *server.Server
	admin  *clientv3.Client
}

// state is the revision of the keys, and how many leases there are.
func (e *etcdUnderTest) state(t testing.TB) string {
	keys, err := e.admin.Get(context.Background(), "none")
	must(t, err)
	leases, err := e.admin.Leases(context.Background())
	must(t, err)
	return fmt.Sprintf("revision %d, %d leases", keys.Header.Revision, len(leases.Leases))
}

func etcdClient(t testing.TB, addr string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (e *etcdUnderTest) open(t testing.TB, o dlock.Options) *conformance.Peer {
	proxy := e.listen(t)
	u, err := backend.ParseURL("etcd://" + proxy.Addr())
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := backend.Open(ctx, backend.Config{URL: u, TTL: o.TTL})
	must(t, err)
	// Lease, key, watch, and the server's version, for which Open does not wait: it is
	// not to be counted later.
	for sent := int64(0); sent < 4; sent = proxy.Stats().Requests {
		must(t, ctx.Err())
		time.Sleep(time.Millisecond)
	}
	return e.peer(t, b, o, proxy)
}

// queue returns the keys of a lock, oldest first, and of what kind each is.
func (e *etcdUnderTest) queue(t testing.TB, name string) (kinds, keys []string) {
	dir := etcd.DefaultPrefix + "/l/" + backend.EncodeName(name) + "/"
	reply, err := e.admin.Get(context.Background(), dir, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range reply.Kvs {
		if string(kv.Value) == "-" { // released, and not deleted yet
			continue
		}
		kinds = append(kinds, strings.TrimPrefix(string(kv.Key), dir)[:1])
		keys = append(keys, string(kv.Key))
	}
	return kinds, keys
}

func (e *etcdUnderTest) evict(t testing.TB, name string) {
	kinds, keys := e.queue(t, name)
	for i := range holders(kinds) {
		if _, err := e.admin.Delete(context.Background(), keys[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *etcdUnderTest) waiting(t testing.TB, name string) int {
	kinds, _ := e.queue(t, name)
	return len(kinds) - holders(kinds)
}

// holders returns how many of the first keys of a queue hold the lock.
func holders(kinds []string) int {
	for i, kind := range kinds {
		if kind == "w" {
			return max(i, 1)
		}
	}
	return len(kinds)
}

func (e *etcdUnderTest) residue(t testing.TB) []string {
	reply, err := e.admin.Get(context.Background(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range reply.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func (e *etcdUnderTest) restart(t testing.TB) {
	if err := e.server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := e.server.Restart(true); err != nil {
		t.Fatal(err)
	}
}

func (e *etcdUnderTest) borrow(t testing.TB) (backend.Backend, func() error) {
	c := etcdClient(t, e.server.Addr())
	return etcd.New(c, nil), func() error {
		_, err := c.Get(context.Background(), "any")
		return err
	}
}

// badEtcdLogin is on a server of its own, because logging in is all or nothing.
func badEtcdLogin(t testing.TB, kind server.Etcd) string {
	s := server.Start(t, kind)
	c, ctx := etcdClient(t, s.Addr()), context.Background()
	_, err1 := c.UserAdd(ctx, "root", "right")
	_, err2 := c.UserGrantRole(ctx, "root", "root")
	_, err3 := c.AuthEnable(ctx)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return "etcd://root:wrong@" + s.Addr()
}
