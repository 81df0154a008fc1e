package zk_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/server"
)

// intruder is a connection of somebody who reaches the server, with or without a user.
func intruder(t testing.TB, addr, login string) *gozk.Conn {
	t.Helper()
	conn, _, err := gozk.Connect([]string{addr}, 10*time.Second, gozk.WithLogInfo(false), gozk.WithLogger(quiet{}), gozk.WithDialer(server.DialImpatiently))
	must(t, err)
	t.Cleanup(conn.Close)
	if login != "" {
		must(t, conn.AddAuth("digest", []byte(login)))
	}
	return conn
}

// TestNeighbour has somebody with another user, or none, try all that would take a lock
// away or let somebody in, of a client that has a user.
func TestNeighbour(t *testing.T) {
	o := &zk.Options{Credentials: user("alice", "secret"), SessionTimeout: 30 * time.Second}
	lease := lock(t, connect(t, o, shared.Addr()).Mutex("m"))
	waiter := start(t, connect(t, o, shared.Addr()).Mutex("m"))
	op := operator(t, shared.Addr())
	queued(t, op, "m", 2)
	dir := rootOf(t) + "/m"
	acl := gozk.WorldACL(gozk.PermAll)
	for _, login := range []string{"", "mallory:secret", "alice:guess"} {
		evil := intruder(t, shared.Addr(), login)
		paths := []string{rootOf(t), dir}
		for _, name := range nodes(t, op, "m") {
			paths = append(paths, dir+"/"+name)
		}
		for _, path := range paths {
			for what, try := range map[string]func() error{
				"read":   func() error { _, _, err := evil.Get(path); return err },
				"listed": func() error { _, _, err := evil.Children(path); return err },
				"set":    func() error { _, err := evil.Set(path, nil, -1); return err },
				"opened": func() error { _, err := evil.SetACL(path, acl, -1); return err },
				"marked": func() error { _, err := evil.Create(path+"-free", nil, 0, acl); return err },
				"child":  func() error { _, err := evil.Create(path+"/x", nil, 0, acl); return err },
				"all at once": func() error {
					_, err := evil.Multi(&gozk.SetDataRequest{Path: path, Version: -1}, &gozk.DeleteRequest{Path: path, Version: -1})
					return err
				},
				"deleted": func() error {
					if path == rootOf(t) {
						return gozk.ErrNotEmpty // it has children; an empty one has its placeholder
					}
					return evil.Delete(path, -1)
				},
			} {
				if what == "marked" && (path == rootOf(t)) {
					continue // it is beside the root, where everybody may make nodes
				}
				if err := server.WhenConnected(gozk.ErrNoServer, try); err == nil {
					t.Errorf("%q: %s: %s", login, path, what)
				}
			}
		}
	}
	if !waiter.waiting() {
		t.Error("let in")
	}
	must(t, lease.Err())
	unlock(t, lease)
	unlock(t, waiter.granted(t))
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHostilePeer has somebody with the rights of a lock user, as everybody has where there
// is no user, write 20,000 times to the nodes of a lock, of its holder and of a waiter,
// and make a thousand more beside them. It could delete them; but what is no release lets
// nobody in, ends nothing, and costs clients neither goroutines nor memory.
func TestHostilePeer(t *testing.T) {
	const messages, each = 20_000, 500
	c, proxy := proxied(t, &zk.Options{SessionTimeout: 60 * time.Second}, shared.Addr())
	lease := lock(t, connect(t, &zk.Options{SessionTimeout: 60 * time.Second}, shared.Addr()).Mutex("m"))
	waiter := start(t, c.Mutex("m"))
	op := operator(t, shared.Addr())
	queued(t, op, "m", 2)
	dir := rootOf(t) + "/m"
	targets := []string{dir, dir + "/" + nodes(t, op, "m")[0], dir + "/" + nodes(t, op, "m")[1]}
	evil := intruder(t, shared.Addr(), "")
	memory, goroutines, peak, requests := heap(), runtime.NumGoroutine(), 0, proxy.Stats().Requests
	for i := range messages / each {
		ops := make([]any, each)
		for k := range ops {
			ops[k] = &gozk.SetDataRequest{Path: targets[(i+k)%3], Data: fmt.Appendf(nil, "%d %d", -i, k), Version: -1}
		}
		must(t, server.WhenConnected(gozk.ErrNoServer, func() error { _, err := evil.Multi(ops...); return err }))
		peak = max(peak, runtime.NumGoroutine())
	}
	acl := gozk.WorldACL(gozk.PermAll)
	for i := range 1000 {
		name := []string{
			"nonsense-%d", "-free%d", strings.Repeat("0", 32) + "-x-%010d", strings.Repeat("z", 32) + "-w-%010d",
			strings.Repeat("f", 32) + "-w-%010d-free", strings.Repeat("f", 32) + "-r-2%09d",
		}[i%6]
		_, err := evil.Create(dir+"/"+fmt.Sprintf(name, i), nil, 0, acl)
		must(t, err)
	}
	memory, requests = heap()-memory, proxy.Stats().Requests-requests
	t.Logf("%d goroutines, %d at most; %d requests of the waiter; %d KiB", goroutines, peak, requests, memory>>10)
	if peak > goroutines+1000 || memory > 64<<20 {
		t.Errorf("%d goroutines, %d before; %d KiB more", peak, goroutines, memory>>10)
	}
	if requests > 5*messages/each {
		t.Errorf("%d requests", requests)
	}
	if !waiter.waiting() {
		t.Error("let in")
	}
	must(t, lease.Err())
	unlock(t, lease)
	next := waiter.granted(t)
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	unlock(t, next)
}

// TestSessionTakenOver has somebody without a user end the session of a client that has
// one: ZooKeeper makes a session's password from its number, and nothing but the network
// keeps a stranger from both. The holder knows by the end of its lease at the latest, and
// the next token is greater.
func TestSessionTakenOver(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind)
	o := &zk.Options{Credentials: user("alice", "secret"), SessionTimeout: 6 * time.Second}
	var clients []*dlock.Client
	var ids []int64
	op := operator(t, s.Addr())
	for range 2 {
		clients = append(clients, connect(t, o, s.Addr()))
	}
	lease := lock(t, clients[0].Mutex("m"))
	for _, name := range nodes(t, op, "m") {
		_, stat, err := op.Exists(rootOf(t) + "/m/" + name)
		must(t, err)
		ids = append(ids, stat.EphemeralOwner)
	}
	waiter := start(t, clients[1].Mutex("m"))
	queued(t, op, "m", 2)
	var over time.Time
	eventually(t, "the session is ended", func() bool {
		end(s.Addr(), ids[0])
		over = time.Now()
		select {
		case <-waiter.done:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	receive(t, "the loss", lease.Context(testContext(t)).Done())
	if late := time.Since(over); late > o.SessionTimeout {
		t.Errorf("the holder knows after %v", late)
	}
	wantError(t, lease.Err(), dlock.ErrLost)
	next := waiter.granted(t)
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	unlock(t, next)
}

// end closes a session of somebody else.
func end(addr string, id int64) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	b := append(make([]byte, 12), 0, 0, 0x17, 0x70) // version, change, timeout
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint32(b, 16)
	b = append(b, passwordOf(id)...)
	const closing = "\x00\x00\x00\x08\x00\x00\x00\x01\xff\xff\xff\xf5"
	_, _ = conn.Write(append(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), closing...))
	_, _ = io.Copy(io.Discard, conn)
}

// passwordOf is what java.util.Random makes of a session's number and a constant.
func passwordOf(id int64) []byte {
	const multiplier, mask = 0x5DEECE66D, 1<<48 - 1
	seed := (uint64(id^0xB3415C00) ^ multiplier) & mask
	var b []byte
	for range 4 {
		seed = (seed*multiplier + 0xB) & mask
		b = binary.LittleEndian.AppendUint32(b, uint32(seed>>16))
	}
	return b
}
