package zk_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// A tap forwards connections and reads along which session each one opens.
type tap struct {
	net.Listener
	target string
	gate   sync.Mutex // held while nobody is let through to the server

	mu      sync.Mutex
	session []byte // id and password of the latest
}

func newTap(t testing.TB, target string) *tap {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	tp := &tap{Listener: ln, target: target}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go tp.forward(client)
		}
	}()
	return tp
}

func (tp *tap) forward(client net.Conn) {
	defer client.Close()
	tp.gate.Lock()
	server, err := net.Dial("tcp", tp.target)
	tp.gate.Unlock()
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	// Length, version, timeout, id, length of the password, password.
	opening := make([]byte, 4+4+4+8+4+16)
	if _, err := io.ReadFull(server, opening); err != nil {
		return
	}
	tp.mu.Lock()
	tp.session = opening[12:]
	tp.mu.Unlock()
	if _, err := client.Write(opening); err == nil {
		_, _ = io.Copy(client, server)
	}
}

// expire closes the session from a second connection, as if it had expired. The
// client cannot win it back meanwhile: a server that closes a session just then
// leaves the new connection open, and drops all that is asked on it.
func (tp *tap) expire(t testing.TB) {
	t.Helper()
	tp.mu.Lock()
	session := tp.session
	tp.mu.Unlock()
	tp.gate.Lock()
	defer tp.gate.Unlock()
	eventually(t, "the session is unknown", func() bool { return !tp.close(t, session) })
}

// close asks for the session and closes it. It reports false if the server does
// not know it.
func (tp *tap) close(t testing.TB, session []byte) bool {
	t.Helper()
	conn, err := net.Dial("tcp", tp.target)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(limit)))
	greeting := append(make([]byte, 4+8), 0, 0, 0x10, 0)      // version, last transaction, timeout
	closing := []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 256 - 11} // number and code of the request
	_, err = conn.Write(append(frame(append(greeting, session...)), frame(closing)...))
	must(t, err)
	reply := make([]byte, 4+4+4+8)
	if _, err := io.ReadFull(conn, reply); err != nil {
		return true
	}
	_, _ = io.Copy(io.Discard, conn)
	return binary.BigEndian.Uint64(reply[12:]) != 0
}

func frame(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

// TestSessionExpiresDuringConnect does so several times: the driver may have another
// session before anybody has seen the end of the first, and answer from that.
func TestSessionExpiresDuringConnect(t *testing.T) {
	tp := newTap(t, shared.Addr())
	for range 5 {
		must(t, connectExpired(t, tp))
	}
}

// connectExpired connects, and ends the first session when it has asked something.
func connectExpired(t *testing.T, tp *tap) error {
	p := proxyTo(t, tp.Addr().String())
	asked, first := make(chan struct{}), sync.Once{}
	p.OnRequest(func(_ int, req []byte) {
		if codeOf(req) == opGet {
			first.Do(func() {
				p.Blackhole(faultnet.ToClient)
				close(asked)
			})
		}
	})
	result := make(chan error, 1)
	go func() {
		b, err := zk.Connect(testContext(t), []string{p.Addr()}, &zk.Options{Root: rootOf(t)})
		if err == nil {
			err = b.Close(testContext(t))
		}
		result <- err
	}()
	receive(t, "asked", asked)
	tp.expire(t)
	p.Restore(faultnet.ToClient)
	return receive(t, "connected", result)
}

// TestSessionExpiresWhileHolding ends a session long before it would be renewed.
func TestSessionExpiresWhileHolding(t *testing.T) {
	tp := newTap(t, shared.Addr())
	c := connect(t, &zk.Options{SessionTimeout: 5 * limit}, tp.Addr().String())
	leases := []*dlock.Lease{lock(t, c.Mutex("a")), lock(t, c.Mutex("b"))}
	tp.expire(t)
	for _, lease := range leases {
		receive(t, "lost", lease.Done())
		wantError(t, lease.Err(), dlock.ErrLost)
		wantError(t, lease.Unlock(testContext(t)), dlock.ErrLost)
	}
	again := lock(t, c.Mutex("a")) // in a new session
	if again.Token() <= leases[0].Token() {
		t.Errorf("token %d came after %d", again.Token(), leases[0].Token())
	}
	unlock(t, again)
}

func TestSessionExpiresWhileWaiting(t *testing.T) {
	for name, locker := range map[string]func(*dlock.Client) dlock.Locker{
		"writer": func(c *dlock.Client) dlock.Locker { return c.RWMutex("m") },
		"reader": func(c *dlock.Client) dlock.Locker { return c.RWMutex("m").RLocker() },
	} {
		t.Run(name, func(t *testing.T) {
			op := operator(t, shared.Addr())
			tp := newTap(t, shared.Addr())
			holder := connect(t, nil, shared.Addr())
			lease := lock(t, holder.Mutex("m"))
			next := start(t, locker(connect(t, nil, tp.Addr().String())))
			queued(t, op, "m", 2)
			before := nodes(t, op, "m")
			tp.expire(t)
			eventually(t, "queued anew", func() bool {
				now := nodes(t, op, "m")
				return len(now) == 2 && !same(before, now)
			})
			if !next.waiting() || lease.Err() != nil {
				t.Fatalf("the waiter got in beside the holder, or that lost it: %t, %v", !next.waiting(), lease.Err())
			}
			unlock(t, lease)
			unlock(t, next.granted(t))
			queued(t, op, "m", 0)
		})
	}
}

func same(a, b []string) bool {
	seen := make(map[string]bool)
	for _, s := range a {
		seen[s] = true
	}
	for _, s := range b {
		if !seen[s] {
			return false
		}
	}
	return true
}

// TestNothingOfOneSessionRunsOnTheNext queues requests in a session that the
// server then lets expire.
func TestNothingOfOneSessionRunsOnTheNext(t *testing.T) {
	t.Parallel()
	op := operator(t, shared.Addr())
	c, p := proxied(t, &zk.Options{SessionTimeout: time.Second}, shared.Addr())
	lease := lock(t, c.Mutex("held"))
	p.Blackhole(faultnet.BothWays)
	var calls []*call
	for range 4 {
		calls = append(calls, start(t, c.RWMutex("m").RLocker()))
	}
	receive(t, "lost", lease.Done())
	queued(t, op, "held", 0)
	p.Reset()
	p.Restore(faultnet.BothWays)
	granted := 0
	for _, call := range calls {
		receive(t, "an outcome", call.done)
		if call.err == nil {
			granted++
			defer unlock(t, call.lease)
		} else {
			wantError(t, call.err, dlock.ErrUnavailable)
		}
	}
	unlock(t, lock(t, c.Mutex("held")))
	queued(t, op, "m", granted)
	queued(t, op, "held", 0)
}

func TestStrict(t *testing.T) {
	for _, strict := range []bool{false, true} {
		c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second, Strict: strict}, shared.Addr())
		lease := lock(t, c.Mutex("m"))
		p.Reset()
		if strict {
			receive(t, "lost", lease.Done())
			wantError(t, lease.Unlock(testContext(t)), dlock.ErrLost)
			unlock(t, lock(t, c.Mutex("m")))
			continue
		}
		unlock(t, lock(t, c.Mutex("other"))) // the connection is back
		unlock(t, lease)
	}
}

// TestServerStopped stops the server for less and for more than the session
// timeout.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind)
	holder := connect(t, &zk.Options{SessionTimeout: 10 * time.Second}, s.Addr())
	waiter := connect(t, &zk.Options{SessionTimeout: 10 * time.Second}, s.Addr())
	op := operator(t, s.Addr())
	lease := lock(t, holder.Mutex("m"))
	next := start(t, waiter.Mutex("m"))
	queued(t, op, "m", 2)

	must(t, s.Pause())
	pass(2 * time.Second)
	must(t, s.Resume())
	pass(10 * time.Second)
	if lease.Err() != nil || !next.waiting() {
		t.Fatalf("a short stop: lease %v, it waits: %t", lease.Err(), next.waiting())
	}

	must(t, s.Pause())
	receive(t, "lost", lease.Done())
	wantError(t, lease.Err(), dlock.ErrLost)
	must(t, s.Resume())
	unlock(t, next.granted(t))
	unlock(t, lock(t, holder.Mutex("m")))
	queued(t, op, "m", 0)
}

// pass lets d go by, in which something must not happen.
func pass(d time.Duration) { <-time.After(d) }

func TestServerKilledAndRestarted(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind)
	holder := connect(t, &zk.Options{SessionTimeout: 20 * time.Second}, s.Addr())
	waiter := connect(t, &zk.Options{SessionTimeout: 20 * time.Second}, s.Addr())
	op := operator(t, s.Addr())
	lease := lock(t, holder.Mutex("m"))
	next := start(t, waiter.Mutex("m"))
	queued(t, op, "m", 2)
	eventually(t, "it watches what it waits for", func() bool { return watches(t, s.Addr()) > 0 })
	must(t, s.Kill())
	must(t, s.Restart(true))
	queued(t, op, "m", 2)
	if lease.Err() != nil || !next.waiting() {
		t.Fatalf("after a restart: lease %v, it waits: %t", lease.Err(), next.waiting())
	}
	unlock(t, lease)
	second := next.granted(t)
	if second.Token() <= lease.Token() {
		t.Errorf("token %d came after %d", second.Token(), lease.Token())
	}
	unlock(t, second)
	queued(t, op, "m", 0)
}

// TestServerLosesItsData begins with nothing again: the session is unknown.
func TestServerLosesItsData(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind)
	c := connect(t, nil, s.Addr())
	lease := lock(t, c.Mutex("m"))
	must(t, s.Kill())
	must(t, s.Restart(false))
	receive(t, "lost", lease.Done())
	wantError(t, lease.Unlock(testContext(t)), dlock.ErrLost)
	recovers(t, c.Mutex("m"))
}

// TestFixedHoldOutlastsSession holds a lock for longer than a session lasts
// unheard, without any renewal by the client.
func TestFixedHoldOutlastsSession(t *testing.T) {
	t.Parallel()
	c, p := proxied(t, &zk.Options{SessionTimeout: 4 * time.Second}, shared.Addr())
	fixed := func(name string) *dlock.Lease {
		return lock(t, c.Mutex(name, dlock.WithTTL(time.Minute), dlock.WithMaxHold(15*time.Second)))
	}
	lease := fixed("a")
	pass(5 * time.Second)
	must(t, lease.Err())
	unlock(t, lease)
	lease = fixed("a")
	p.Blackhole(faultnet.BothWays)
	cut := time.Now()
	receive(t, "lost", lease.Done())
	if took := time.Since(cut); took > 10*time.Second {
		t.Errorf("lost %v after the cut", took)
	}
	p.Restore(faultnet.BothWays)
	wantError(t, lease.Unlock(testContext(t)), dlock.ErrLost)
	recovers(t, c.Mutex("a"))
}
