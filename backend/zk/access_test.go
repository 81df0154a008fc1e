package zk_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

func user(name, password string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) { return name, password, nil }
}

func TestAccessDenied(t *testing.T) {
	op := operator(t, shared.Addr())
	c := connect(t, nil, shared.Addr())
	unlock(t, lock(t, c.Mutex("m")))
	for name, acl := range map[string][]gozk.ACL{
		"all":    gozk.DigestACL(gozk.PermAll, "somebody", "else"),
		"create": gozk.WorldACL(gozk.PermAll &^ gozk.PermCreate),
		"write":  gozk.WorldACL(gozk.PermAll &^ gozk.PermWrite),
		"read":   gozk.WorldACL(gozk.PermAll &^ gozk.PermRead),
	} {
		_, err := op.SetACL(rootOf(t)+"/m", acl, -1)
		must(t, err)
		for _, l := range []dlock.Locker{c.RWMutex("m"), c.RWMutex("m").RLocker()} {
			if lease, err := l.TryLock(testContext(t)); err == nil {
				t.Errorf("without %s: locked", name)
				unlock(t, lease)
			} else {
				wantError(t, err, dlock.ErrAuth)
			}
		}
		queued(t, op, "m", 0)
	}
}

// TestDeleteForbiddenForAWhile has an ACL forbid to delete nodes while a holder unlocks and a
// waiter gives up. Both nodes go as soon as they may, and not only with the session.
func TestDeleteForbiddenForAWhile(t *testing.T) {
	t.Parallel()
	op := operator(t, shared.Addr())
	c, d := connect(t, nil, shared.Addr()), connect(t, nil, shared.Addr())
	lease := lock(t, c.Mutex("m"))
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := d.Mutex("m").Lock(ctx)
		failed <- err
	}()
	queued(t, op, "m", 2)
	_, err := op.SetACL(rootOf(t)+"/m", gozk.WorldACL(gozk.PermAll&^gozk.PermDelete), -1)
	must(t, err)
	cancel()
	wantError(t, receive(t, "the end of the wait", failed), dlock.ErrHeld)
	wantError(t, lease.Unlock(testContext(t)), dlock.ErrAuth)
	queued(t, op, "m", 2)
	_, err = op.SetACL(rootOf(t)+"/m", gozk.WorldACL(gozk.PermAll), -1)
	must(t, err)
	queued(t, op, "m", 0)
	unlock(t, lock(t, d.Mutex("m")))
}

// TestCreatorsOwn checks that what a client with a user makes is its own, down
// to the nodes above.
func TestCreatorsOwn(t *testing.T) {
	op := operator(t, shared.Addr())
	o := &zk.Options{Root: rootOf(t) + "/deep/down", Credentials: user("alice", "secret")}
	alice := connect(t, o, shared.Addr())
	lease := lock(t, alice.Mutex("m"))
	children, _, err := op.Children(o.Root + "/m")
	must(t, err)
	for _, path := range []string{rootOf(t), rootOf(t) + "/deep", o.Root, o.Root + "/m", o.Root + "/m/" + children[0]} {
		acl, _, err := op.GetACL(path)
		must(t, err)
		if len(acl) != 1 || acl[0].Scheme != "digest" || !strings.HasPrefix(acl[0].ID, "alice:") {
			t.Errorf("%s: %v", path, acl)
		}
	}
	again := connect(t, o, shared.Addr())
	held(t, again.Mutex("m"))
	unlock(t, lease)
	for _, other := range []*zk.Options{
		{Root: o.Root},
		{Root: o.Root, Credentials: user("alice", "guess")},
	} {
		_, err := zk.Connect(testContext(t), []string{shared.Addr()}, other)
		wantError(t, err, dlock.ErrAuth)
	}
}

// TestUserSurvivesReconnect breaks the connection: the driver says again who
// the user is.
func TestUserSurvivesReconnect(t *testing.T) {
	c, p := proxied(t, &zk.Options{Credentials: user("alice", "secret")}, shared.Addr())
	unlock(t, lock(t, c.Mutex("m")))
	p.Reset()
	unlock(t, lock(t, c.Mutex("m")))
}

// TestUnlockWhileUnknown has the server not answer the credentials, which the driver
// sends ahead of all else when it has connected again. What is asked meanwhile is
// bounded as ever.
func TestUnlockWhileUnknown(t *testing.T) {
	t.Parallel()
	const session = 6 * time.Second
	c, p := proxied(t, &zk.Options{SessionTimeout: session, Credentials: user("alice", "secret")}, shared.Addr())
	var leases []*dlock.Lease
	for i := range 8 {
		leases = append(leases, lock(t, c.Mutex(fmt.Sprint("m", i))))
	}
	asked := make(chan struct{})
	var once sync.Once
	p.OnRequest(func(_ int, request []byte) {
		if isRequest(opAuth)(request) {
			once.Do(func() {
				p.Blackhole(faultnet.ToClient)
				close(asked)
			})
		}
	})
	p.Reset()
	receive(t, "the credentials", asked)
	var all sync.WaitGroup
	start := time.Now()
	for _, lease := range leases {
		all.Go(func() { _ = lease.Unlock(context.Background()) })
	}
	all.Wait()
	if took := time.Since(start); took > session*3/2 {
		t.Errorf("took %v", took)
	}
	p.Restore(faultnet.ToClient)
}

// TestNoContainers talks to a server that knows no containers: their requests
// get a code that no server knows.
func TestNoContainers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	tunnel(t, &rewriter{ln}, shared.Addr())
	var log safeBuffer
	c := connect(t, &zk.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, ln.Addr().String())
	unlock(t, lock(t, c.Mutex("m")))
	unlock(t, lock(t, c.Mutex("n")))
	_, stat, err := operator(t, shared.Addr()).Exists(rootOf(t) + "/m")
	must(t, err)
	if stat.EphemeralOwner != 0 {
		t.Errorf("the node is of kind %x, want a plain one", stat.EphemeralOwner)
	}
	if n := strings.Count(log.String(), "no container nodes"); n != 1 {
		t.Errorf("the log says so %d times:\n%s", n, &log)
	}
}

// A rewriter gives the requests for a container another code.
type rewriter struct{ net.Listener }

func (r *rewriter) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	return &rewritten{Conn: conn}, err
}

type rewritten struct {
	net.Conn
	rest []byte
}

func (r *rewritten) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		head := make([]byte, 4)
		if _, err := io.ReadFull(r.Conn, head); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(r.Conn, frame); err != nil {
			return 0, err
		}
		if binary.BigEndian.Uint32(frame[4:]) == opContainer {
			binary.BigEndian.PutUint32(frame[4:], 99)
		}
		r.rest = append(head, frame...)
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// stranger is a connection without a login.
func stranger(t *testing.T) *gozk.Conn {
	conn, _, err := gozk.Connect([]string{shared.Addr()}, 10*time.Second, gozk.WithLogInfo(false), gozk.WithLogger(quiet{}))
	must(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// TestRootStays checks that the root of a user's locks is there for good: nobody else
// can delete it, not even while there is no lock.
func TestRootStays(t *testing.T) {
	o := &zk.Options{Credentials: user("alice", "secret")}
	for name, prepare := range map[string]func(){
		"made with the first lock": func() {},
		"made beforehand": func() {
			_, err := operator(t, shared.Addr()).Create(o.Root, nil, gozk.FlagPersistent, gozk.DigestACL(gozk.PermAll, "alice", "secret"))
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o.Root = rootOf(t)
			prepare()
			unlock(t, lock(t, connect(t, o, shared.Addr()).Mutex("m")))
			op := operator(t, shared.Addr())
			must(t, op.Delete(o.Root+"/m", -1)) // as the server does by and by
			_, stat, err := op.Exists(o.Root)
			must(t, err)
			if stat.EphemeralOwner != 0 {
				t.Errorf("the server removes the root when it is empty")
			}
			wantError(t, stranger(t).Delete(o.Root, -1), gozk.ErrNotEmpty)
			unlock(t, lock(t, connect(t, o, shared.Addr()).Mutex("m")))
		})
	}
}

// TestStrangersNodes has a stranger make the root, or the node of a lock, before the
// user whose locks are to be kept there.
func TestStrangersNodes(t *testing.T) {
	o := &zk.Options{Root: rootOf(t), Credentials: user("alice", "secret")}
	evil := stranger(t)
	_, err := evil.Create(o.Root, nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	must(t, err)
	_, err = evil.Create(o.Root+"/m", nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	must(t, err)
	_, err = zk.Connect(testContext(t), []string{shared.Addr()}, o)
	wantError(t, err, dlock.ErrConflict)

	_, err = evil.SetACL(o.Root, gozk.DigestACL(gozk.PermAll, "alice", "secret"), -1)
	must(t, err)
	c := connect(t, o, shared.Addr())
	for _, l := range []dlock.Locker{c.Mutex("m"), uncancelled{c.Mutex("m")}, c.RWMutex("m").RLocker()} {
		_, err = l.Lock(testContext(t))
		wantError(t, err, dlock.ErrConflict)
		_, err = l.TryLock(testContext(t))
		wantError(t, err, dlock.ErrConflict)
	}
	unlock(t, lock(t, c.Mutex("other")))
	queued(t, operator(t, shared.Addr()), "m", 0)
}

// TestRootIsTakenAtOnce has a stranger come between the opening of a client and its
// first lock.
func TestRootIsTakenAtOnce(t *testing.T) {
	o := &zk.Options{Root: rootOf(t), Credentials: user("alice", "secret")}
	c := connect(t, o, shared.Addr())
	evil := stranger(t)
	_, err := evil.Create(o.Root, nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	wantError(t, err, gozk.ErrNodeExists)
	_, err = evil.Create(o.Root+"/m", nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	wantError(t, err, gozk.ErrNoAuth)
	unlock(t, lock(t, c.Mutex("m")))
}

// TestWarningOfOpenLocks is for who has not thought of it.
func TestWarningOfOpenLocks(t *testing.T) {
	for name, o := range map[string]*zk.Options{
		"warned": {},
		"user":   {Credentials: user("alice", "secret")},
		"chosen": {ACL: gozk.WorldACL(gozk.PermAll)},
	} {
		var log safeBuffer
		o.Root, o.Logger = rootOf(t)+name, slog.New(slog.NewTextHandler(&log, nil))
		connect(t, o, shared.Addr())
		if warned := strings.Contains(log.String(), "everybody"); warned != (name == "warned") {
			t.Errorf("%s: the log says %q", name, &log)
		}
	}
}
