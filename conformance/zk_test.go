package conformance_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// zkSessions is how many TTLs a session lasts. A session is for all locks of a
// client, so it must be longer than the longest TTL of a lock that is to survive
// a cut.
const zkSessions = 3

func zkHarness(t testing.TB) conformance.Harness {
	const password = "super-secret"
	s := server.Start(t, server.ZooKeeper{
		SuperPassword: password,
		Config:        []string{"maxSessionTimeout=600000"},
	})
	z := &zkServer{
		proxied: proxied{target: s.Addr(), framing: faultnet.ZooKeeper},
		server:  s,
		conn:    zkOperator(t, s.Addr(), password),
	}
	z.guard(t)
	return conformance.Harness{
		Name:     "zk",
		Version:  s.Version(),
		Scheme:   "zk",
		URL:      fmt.Sprintf("zk://%s%s?session=%v", s.Addr(), zkRoot, zkSessions*(*ttl)),
		TTL:      *ttl,
		Leased:   true,
		Open:     z.open,
		Evict:    z.evict,
		Ops:      z.requests,
		Conns:    z.connections,
		Waiting:  z.waiting,
		Residue:  z.residue,
		State:    z.state,
		Foreign:  z.foreign,
		Restart:  z.restart,
		Durable:  true,
		BadLogin: fmt.Sprintf("zk://user:wrong@%s%s", s.Addr(), zkGuarded),
		Nowhere:  "zk://127.0.0.1:1",
		Optional: []string{"BatchReleaser", "Breaker", "Downgrader", "Inspector", "Pinger", "Renewer", "Transferer"},
	}
}

const (
	zkRoot    = "/dlock"
	zkGuarded = "/guarded" // may be used by one user only
)

// A zkServer is the server under test, with an operator's connection to it.
type zkServer struct {
	proxied
	server *server.Server
	conn   *gozk.Conn
}

func zkOperator(t testing.TB, addr, password string) *gozk.Conn {
	conn, _, err := gozk.Connect([]string{addr}, time.Minute, gozk.WithLogInfo(false), gozk.WithDialer(server.DialImpatiently))
	if err == nil {
		err = conn.AddAuth("digest", []byte("super:"+password))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// state is the number of the server's last write, that of a session included.
func (z *zkServer) state(t testing.TB) string {
	conn, err := net.Dial("tcp", z.server.Addr())
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "srvr")
	must(t, err)
	text, err := io.ReadAll(conn)
	must(t, err)
	_, rest, ok := strings.Cut(string(text), "Zxid: ")
	if !ok {
		t.Fatalf("the server says %q", text)
	}
	number, _, _ := strings.Cut(rest, "\n")
	return number
}

func (z *zkServer) guard(t testing.TB) {
	must(t, server.WhenConnected(gozk.ErrNoServer, func() error {
		_, err := z.conn.Create(zkGuarded, nil, gozk.FlagPersistent, gozk.DigestACL(gozk.PermAll, "user", "right"))
		return err
	}))
}

func (z *zkServer) open(t testing.TB, o dlock.Options) *conformance.Peer {
	proxy := z.listen(t)
	b, err := zk.Connect(t.Context(), []string{proxy.Addr()}, &zk.Options{Root: zkRoot, SessionTimeout: zkSessions * o.TTL})
	must(t, err)
	return z.peer(t, b, o, proxy)
}

// queue lists the nodes of a lock in order.
func (z *zkServer) queue(t testing.TB, name string) []string {
	nodes := z.children(t, zkPath(name))
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Compare(zkSequence(a), zkSequence(b)) })
	return nodes
}

func (z *zkServer) children(t testing.TB, path string) (nodes []string) {
	err := server.WhenConnected(gozk.ErrNoServer, func() (err error) {
		nodes, _, err = z.conn.Children(path)
		return err
	})
	if !errors.Is(err, gozk.ErrNoNode) {
		must(t, err)
	}
	return nodes
}

func zkPath(name string) string { return zkRoot + "/" + backend.EncodeName(name) }

func zkSequence(node string) int {
	n, _ := strconv.Atoi(node[strings.LastIndexByte(node, '-')+1:])
	return n
}

// zkHolders counts the nodes at the head of a queue that hold the lock.
func zkHolders(nodes []string) int {
	for i, node := range nodes {
		if !strings.Contains(node, "-r-") {
			return max(i, 1)
		}
	}
	return len(nodes)
}

func (z *zkServer) waiting(t testing.TB, name string) int {
	nodes := z.queue(t, name)
	return len(nodes) - zkHolders(nodes)
}

func (z *zkServer) evict(t testing.TB, name string) {
	nodes := z.queue(t, name)
	for _, node := range nodes[:zkHolders(nodes)] {
		must(t, server.WhenConnected(gozk.ErrNoServer, func() error { return z.conn.Delete(zkPath(name)+"/"+node, -1) }))
	}
}

// residue lists all nodes but those of the locks themselves, which the server
// removes by and by.
func (z *zkServer) residue(t testing.TB) (left []string) {
	for _, lock := range z.children(t, zkRoot) {
		for _, node := range z.children(t, zkRoot+"/"+lock) {
			left = append(left, lock+"/"+node)
		}
	}
	return left
}

// foreign puts a node in the place of a lock that cannot have children.
func (z *zkServer) foreign(t testing.TB, name string) func() error {
	must(t, server.WhenConnected(gozk.ErrNoServer, func() error {
		_, err := z.conn.CreateContainer(zkRoot, nil, gozk.FlagContainer, gozk.WorldACL(gozk.PermAll))
		if errors.Is(err, gozk.ErrNodeExists) {
			return nil
		}
		return err
	}))
	must(t, server.WhenConnected(gozk.ErrNoServer, func() error {
		_, err := z.conn.Create(zkPath(name), []byte("foreign"), gozk.FlagEphemeral, gozk.WorldACL(gozk.PermAll))
		return err
	}))
	return func() error {
		var data []byte
		err := server.WhenConnected(gozk.ErrNoServer, func() (err error) {
			data, _, err = z.conn.Get(zkPath(name))
			return err
		})
		if err == nil && string(data) != "foreign" {
			err = fmt.Errorf("the data is %q", data)
		}
		return err
	}
}

func (z *zkServer) restart(t testing.TB) {
	if err := errors.Join(z.server.Kill(), z.server.Restart(true)); err != nil {
		t.Fatal(err)
	}
}
