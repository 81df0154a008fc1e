package faultnet_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

const limit = 2 * time.Minute

// quiet is how long nothing must arrive for a way to count as shut.
const quiet = 100 * time.Millisecond

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && !poll(func() bool { return len(leaked()) == 0 }) {
		fmt.Fprintf(os.Stderr, "goroutines leaked:\n%s\n", bytes.Join(leaked(), []byte("\n\n")))
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines of the proxy and of the test servers.
func leaked() [][]byte {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	return slices.DeleteFunc(bytes.Split(all, []byte("\n\n")), func(stack []byte) bool {
		return !bytes.Contains(stack, []byte("faultnet.(*")) && !bytes.Contains(stack, []byte("faultnet_test.serve"))
	})
}

func poll(done func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !poll(done) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server runs handle for each connection and records what it got.
type server struct {
	ln    net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []*net.TCPConn
	lines []string
	ended []error // how the reading of each connection came to its end
}

func serve(t *testing.T, handle func(s *server, c *net.TCPConn)) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	s := &server{ln: ln}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.add(c.(*net.TCPConn))
			s.wg.Go(func() {
				defer c.Close()
				handle(s, c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *server) close() {
	s.ln.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *server) add(c *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
}

func (s *server) addr() string { return s.ln.Addr().String() }

func (s *server) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *server) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

func (s *server) endings() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ended)
}

// push sends a line on every connection without being asked.
func (s *server) push(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		fmt.Fprintln(c, line)
	}
}

// eachLine records every line and calls reply for it.
func eachLine(reply func(c *net.TCPConn, line string)) func(*server, *net.TCPConn) {
	return func(s *server, c *net.TCPConn) {
		in := bufio.NewScanner(c)
		for in.Scan() {
			s.mu.Lock()
			s.lines = append(s.lines, in.Text())
			s.mu.Unlock()
			reply(c, in.Text())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = append(s.ended, in.Err())
	}
}

// lineServer answers every line with "ok " and the line.
func lineServer(t *testing.T) *server {
	return serve(t, eachLine(func(c *net.TCPConn, line string) { fmt.Fprintln(c, "ok "+line) }))
}

func proxyTo(t *testing.T, target string) *faultnet.Proxy {
	t.Helper()
	p, err := faultnet.Listen(target)
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

// lines frames a protocol of lines.
func lines() (requests, replies faultnet.Splitter) {
	split := func(b []byte) (faultnet.Unit, bool) {
		return faultnet.Unit{Size: slices.Index(b, '\n') + 1, Counts: true}, true
	}
	return split, split
}

type client struct {
	*net.TCPConn
	t  *testing.T
	in *bufio.Reader
}

func dial(t *testing.T, p *faultnet.Proxy) *client {
	t.Helper()
	c, err := p.DialContext(t.Context(), "tcp", "192.0.2.1:1")
	check(t, err)
	t.Cleanup(func() { c.Close() })
	check(t, c.SetDeadline(time.Now().Add(limit)))
	return newClient(t, c)
}

func newClient(t *testing.T, c net.Conn) *client {
	return &client{TCPConn: c.(*net.TCPConn), t: t, in: bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.t.Helper()
	_, err := c.Write([]byte(text))
	check(c.t, err)
}

func (c *client) want(line string) {
	c.t.Helper()
	got, err := c.in.ReadString('\n')
	if got != line+"\n" {
		c.t.Fatalf("client got %q, %v; want %q", got, err, line)
	}
}

func (c *client) wantQuiet() {
	c.t.Helper()
	check(c.t, c.SetReadDeadline(time.Now().Add(quiet)))
	got, err := c.in.ReadByte()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("client got %q, %v; want silence", got, err)
	}
	check(c.t, c.SetReadDeadline(time.Now().Add(limit)))
}

func (c *client) wantReset() {
	c.t.Helper()
	got, err := c.in.ReadString('\n')
	if got != "" || !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("client got %q, %v; want a reset", got, err)
	}
}

func wantFired(t *testing.T, d *faultnet.Drop, answered bool) {
	t.Helper()
	select {
	case <-d.Fired():
	case <-time.After(limit):
		t.Fatal("drop did not fire")
	}
	if d.Answered() != answered {
		t.Fatalf("Answered() = %v, want %v", d.Answered(), answered)
	}
}

func wantArmed(t *testing.T, d *faultnet.Drop) {
	t.Helper()
	select {
	case <-d.Fired():
		t.Fatal("drop fired")
	case <-time.After(quiet):
	}
}

func wantLines(t *testing.T, s *server, want ...string) {
	t.Helper()
	eventually(t, "lines at the server", func() bool { return len(s.got()) >= len(want) })
	if got := s.got(); !slices.Equal(got, want) {
		t.Fatalf("server got %q, want %q", got, want)
	}
}
