package faultnet_test

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

func framedProxy(t *testing.T, s *server) *faultnet.Proxy {
	p := proxyTo(t, s.addr())
	p.SetFraming(lines)
	return p
}

// heldServer answers a line only when released.
func heldServer(t *testing.T) (s *server, release func()) {
	gate, end := make(chan struct{}), make(chan struct{})
	s = serve(t, eachLine(func(c *net.TCPConn, line string) {
		select {
		case <-gate:
			fmt.Fprintln(c, "ok "+line)
		case <-end:
		}
	}))
	t.Cleanup(func() { close(end) })
	return s, func() { gate <- struct{}{} }
}

func TestDropReply(t *testing.T) {
	s := lineServer(t)
	p := framedProxy(t, s)
	d := p.DropReply(2)
	c := dial(t, p)
	c.send("a\n")
	c.want("ok a")
	if d.Answered() {
		t.Fatal("answered before it fired")
	}
	c.send("b\n")
	c.wantReset()
	wantFired(t, d, true)
	again := dial(t, p)
	again.send("c\n")
	again.want("ok c")
	wantLines(t, s, "a", "b", "c")
	if got := p.Stats(); got.Requests != 3 || got.Live != 1 {
		t.Fatalf("stats: %+v", got)
	}
}

// TestDropReplyAnswersFirst asks as soon as the client can know of the reset.
func TestDropReplyAnswersFirst(t *testing.T) {
	p := framedProxy(t, lineServer(t))
	for range 2000 {
		d := p.DropReply(1)
		c := dial(t, p)
		c.send("a\n")
		c.wantReset()
		if !d.Answered() {
			t.Fatal("the connection ended before its drop was answered")
		}
	}
}

func TestDropReplyForwardsNothingBehindTheRequest(t *testing.T) {
	s, release := heldServer(t)
	p := framedProxy(t, s)
	d := p.DropReply(2)
	c := dial(t, p)
	c.send("a\nb\nc\n")
	c.send("d\n")
	release()
	wantArmed(t, d) // the reply to a is not the answer to b
	release()
	wantFired(t, d, true)
	c.wantReset()
	wantLines(t, s, "a", "b")
}

func TestDropReplyWaitsForTheReplyToThatRequest(t *testing.T) {
	s, release := heldServer(t)
	p := framedProxy(t, s)
	c := dial(t, p)
	c.send("a\n")
	wantLines(t, s, "a")
	d := p.DropReply(1)
	c.send("b\n")
	eventually(t, "b is forwarded", func() bool { return p.Stats().Requests == 2 })
	release()
	wantArmed(t, d)
	release()
	wantFired(t, d, true)
	c.wantReset()
}

func TestDropReplyHidesThatTheClientIsGone(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, eachLine(func(c *net.TCPConn, line string) {
		go func() { // so that the server would read the end of the stream
			<-release
			fmt.Fprintln(c, "ok "+line)
		}()
	}))
	p := framedProxy(t, s)
	d := p.DropReply(1)
	c := dial(t, p)
	c.send("a\n")
	wantLines(t, s, "a")
	check(t, c.Close())
	wantArmed(t, d)
	if got := s.endings(); len(got) != 0 {
		t.Errorf("server saw the end %v", got)
	}
	close(release)
	wantFired(t, d, true)
}

func TestDropReplyOfAServerThatHangsUp(t *testing.T) {
	s := serve(t, eachLine(func(c *net.TCPConn, _ string) {
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
	}))
	p := framedProxy(t, s)
	d := p.DropReply(1)
	c := dial(t, p)
	c.send("a\n")
	c.wantReset()
	wantFired(t, d, false)
}

func TestDropReplyThroughBlackhole(t *testing.T) {
	s := lineServer(t)
	p := framedProxy(t, s)
	p.Blackhole(faultnet.ToClient)
	d := p.DropReply(1)
	c := dial(t, p)
	c.send("a\n")
	c.wantReset()
	wantFired(t, d, true)
	wantLines(t, s, "a")
}

func TestDropReplyWithoutAnAnswer(t *testing.T) {
	t.Parallel() // takes as long as a drop waits
	s, _ := heldServer(t)
	p := framedProxy(t, s)
	d := p.DropReply(1)
	c := dial(t, p)
	c.send("a\n")
	c.wantReset()
	wantFired(t, d, false)
	wantLines(t, s, "a")
}

func TestDropReplyAfterInRawBytes(t *testing.T) {
	s := lineServer(t)
	p := proxyTo(t, s.addr())
	d := p.DropReplyAfter(func(req []byte) bool { return bytes.Contains(req, []byte("key7")) })
	c := dial(t, p)
	c.send("put key6\n")
	c.want("ok put key6")
	c.send("put key7\n")
	c.wantReset()
	wantFired(t, d, true)
	wantLines(t, s, "put key6", "put key7")
	if n := p.Stats().Requests; n != 0 {
		t.Fatalf("%d requests without a framing", n)
	}
}

func TestDropsSeeEveryRequest(t *testing.T) {
	s := lineServer(t)
	p := framedProxy(t, s)
	first, second, both := p.DropReply(1), p.DropReply(2), p.DropReply(2)
	for i, d := range []*faultnet.Drop{first, second} {
		c := dial(t, p)
		c.send(fmt.Sprintln(i))
		c.wantReset()
		wantFired(t, d, true)
	}
	wantFired(t, both, true)
	wantLines(t, s, "0", "1")
}

func TestDisarm(t *testing.T) {
	p := framedProxy(t, lineServer(t))
	d, other := p.DropReply(1), p.DropReply(2)
	d.Disarm()
	c := dial(t, p)
	c.send("a\n")
	c.want("ok a")
	wantArmed(t, d)
	c.send("b\n")
	c.wantReset()
	wantFired(t, other, true)
}

func TestDropEndsWithItsConnection(t *testing.T) {
	s, _ := heldServer(t)
	p := framedProxy(t, s)
	d := p.DropReply(1)
	c := dial(t, p)
	c.send("a\n")
	wantLines(t, s, "a")
	p.Reset()
	c.wantReset()
	wantFired(t, d, false)
}

func TestDropReplyOnceAmongMany(t *testing.T) {
	const clients, each = 8, 50
	s := lineServer(t)
	p := framedProxy(t, s)
	d := p.DropReply(clients * each / 2)
	var failed atomic.Int32
	var wg sync.WaitGroup
	for i := range clients {
		c := dial(t, p)
		wg.Go(func() {
			for j := range each {
				if !ask(c, fmt.Sprintf("%d-%d", i, j)) {
					failed.Add(1)
					c = redial(t, p)
				}
			}
		})
	}
	wg.Wait()
	wantFired(t, d, true)
	if n := failed.Load(); n != 1 {
		t.Fatalf("%d requests lost their reply, want 1", n)
	}
	got := s.got()
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != clients*each || n != len(s.got()) {
		t.Fatalf("server got %d different requests of %d, want %d", n, len(s.got()), clients*each)
	}
}

// ask is false when the connection fails before the reply.
func ask(c *client, line string) bool {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return false
	}
	got, err := c.in.ReadString('\n')
	return err == nil && got == "ok "+line+"\n"
}

// redial is dial for goroutines other than the test's own.
func redial(t *testing.T, p *faultnet.Proxy) *client {
	c, err := p.DialContext(t.Context(), "tcp", "")
	if err != nil {
		t.Error(err)
		return &client{}
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		t.Error(err)
	}
	return newClient(t, c)
}
