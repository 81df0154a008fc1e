package faultnet_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

func TestDelayEachWay(t *testing.T) {
	const latency = 50 * time.Millisecond
	c := connected(t)
	for _, tc := range []struct {
		way  faultnet.Way
		want time.Duration
	}{{faultnet.ToServer, latency}, {faultnet.ToClient, latency}, {faultnet.BothWays, 2 * latency}} {
		c.p.Delay(tc.way, latency, 0)
		start := time.Now()
		c.send("a\n")
		c.want("ok a")
		if took := time.Since(start); took < tc.want {
			t.Errorf("way %d: round trip took %v, want at least %v", tc.way, took, tc.want)
		}
		c.p.Delay(tc.way, 0, 0)
	}
}

func TestDelayHealsWhatIsUnderWay(t *testing.T) {
	c := connected(t)
	c.p.Delay(faultnet.ToClient, time.Hour, time.Hour)
	c.send("a\n")
	c.wantQuiet()
	c.p.Delay(faultnet.ToClient, 0, 0)
	c.want("ok a")
}

func TestDelayKeepsOrderAndThroughput(t *testing.T) {
	const n, latency = 150, 300 * time.Millisecond // one after the other: 45 s
	c := connected(t)
	c.p.Delay(faultnet.ToServer, latency, latency/10)
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	began := time.Now()
	for i := range n {
		c.send(fmt.Sprintln(i))
		<-pace.C // keeps the lines in chunks of their own
	}
	for i := range n {
		c.want(fmt.Sprint("ok ", i))
	}
	if took := time.Since(began); took > n*latency/2 {
		t.Errorf("%d lines took %v", n, took)
	}
}

func TestBlackholeToClient(t *testing.T) {
	c := connected(t)
	c.p.Blackhole(faultnet.ToClient)
	c.send("a\n")
	wantLines(t, c.s, "hello", "a")
	c.wantQuiet()
	c.p.Restore(faultnet.ToClient)
	c.want("ok a")
}

func TestBlackholeToServer(t *testing.T) {
	c := connected(t)
	c.p.Blackhole(faultnet.ToServer)
	c.send("a\n")
	c.s.push("news")
	c.want("news")
	c.wantQuiet()
	wantLines(t, c.s, "hello")
	c.p.Restore(faultnet.ToServer)
	c.want("ok a")
}

func TestBlackholeBothWays(t *testing.T) {
	c := connected(t)
	c.p.Blackhole(faultnet.BothWays)
	c.s.push("news")
	c.send("a\n")
	c.wantQuiet()
	wantLines(t, c.s, "hello")
	c.send("b\n")
	c.p.Restore(faultnet.BothWays)
	c.want("news")
	c.want("ok a")
	c.want("ok b")
}

func TestBlackholeHoldsBackTheEndOfTheStream(t *testing.T) {
	c := connected(t)
	c.p.Blackhole(faultnet.ToServer)
	check(t, c.CloseWrite())
	c.wantQuiet()
	if got := c.s.endings(); len(got) != 0 {
		t.Fatalf("server saw the end %v through a blackhole", got)
	}
	c.p.Restore(faultnet.ToServer)
	eventually(t, "server sees the end", func() bool { return len(c.s.endings()) == 1 })
}

func TestLateRequestOfAClientThatIsGone(t *testing.T) {
	c := connected(t)
	c.p.Blackhole(faultnet.ToServer)
	c.send("late\n")
	check(t, c.Close())
	c.p.Restore(faultnet.ToServer)
	wantLines(t, c.s, "hello", "late")
}

func TestBlackholeSilencesNewConnections(t *testing.T) {
	s := lineServer(t)
	p := proxyTo(t, s.addr())
	p.Blackhole(faultnet.BothWays)
	c := dial(t, p)
	c.send("a\n")
	c.wantQuiet()
	if n := s.accepted(); n != 0 {
		t.Fatalf("server accepted %d connections through a blackhole", n)
	}
	check(t, p.Heal())
	c.want("ok a")
}

func TestBlackholeOfMoreThanTheProxyTakesIn(t *testing.T) {
	const size = 32 << 20
	p := proxyTo(t, echoServer(t).addr())
	p.Blackhole(faultnet.ToClient)
	heal := time.AfterFunc(quiet, func() { p.Restore(faultnet.ToClient) })
	defer heal.Stop()
	sent, received, err := exchange(dial(t, p), size)
	check(t, err)
	if sent != received {
		t.Fatal("bytes differ")
	}
}

func TestReset(t *testing.T) {
	c := connected(t)
	c.p.Blackhole(faultnet.BothWays) // a reset gets through regardless
	c.p.Reset()
	c.wantReset()
	eventually(t, "server sees the end", func() bool { return len(c.s.endings()) == 1 })
	if err := c.s.endings()[0]; !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("server got %v, want a reset", err)
	}
	check(t, c.p.Heal())
	again := dial(t, c.p)
	again.send("a\n")
	again.want("ok a")
	if live := c.p.Stats().Live; live != 1 {
		t.Fatalf("%d live connections, want 1", live)
	}
}

func TestRefuse(t *testing.T) {
	c := connected(t)
	for range 5 {
		c.p.Refuse()
		if _, err := net.Dial("tcp", c.p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("got %v, want connection refused", err)
		}
		c.send("live\n")
		c.want("ok live")
		check(t, c.p.Admit())
		fresh := dial(t, c.p)
		fresh.send("new\n")
		fresh.want("ok new")
	}
}

func TestRefuseKeepsThePort(t *testing.T) {
	s := lineServer(t)
	p := proxyTo(t, s.addr())
	p.Refuse()
	own, err := net.ResolveTCPAddr("tcp", p.Addr())
	check(t, err)
	thief := net.Dialer{LocalAddr: own}
	if _, err := thief.Dial("tcp", s.addr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("got %v, want address in use", err)
	}
	check(t, p.Admit())
}

func TestHealEndsEveryFault(t *testing.T) {
	c := connected(t)
	c.p.SetFraming(lines)
	c.p.Delay(faultnet.BothWays, time.Hour, 0)
	c.p.Blackhole(faultnet.BothWays)
	c.p.Refuse()
	d := c.p.DropReply(1)
	c.send("a\n")
	c.wantQuiet()
	check(t, c.p.Heal())
	c.want("ok a")
	fresh := dial(t, c.p)
	fresh.send("b\n")
	fresh.want("ok b")
	wantArmed(t, d)
}

// connection is a client of a line server that has said hello.
type connection struct {
	*client
	p *faultnet.Proxy
	s *server
}

func connected(t *testing.T) *connection {
	t.Helper()
	s := lineServer(t)
	p := proxyTo(t, s.addr())
	c := dial(t, p)
	c.send("hello\n")
	c.want("ok hello")
	return &connection{client: c, p: p, s: s}
}
