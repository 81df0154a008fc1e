package zk_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
)

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
	for _, l := range []dlock.Locker{c.Mutex("m"), patient{c.Mutex("m")}, c.RWMutex("m").RLocker()} {
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
