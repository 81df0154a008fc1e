package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// An echo is a server that says each line again, and a client of it behind a proxy.
type echo struct {
	t     *testing.T
	proxy *Proxy
	conn  net.Conn
	lines *bufio.Scanner
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	e := &echo{t: t, proxy: NewProxy(t, l.Addr().String(), nil)}
	t.Cleanup(e.proxy.Close)
	e.dial()
	return e
}

func (e *echo) dial() {
	e.t.Helper()
	c, err := e.proxy.DialContext(e.t.Context(), "tcp", "wherever:1")
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	e.conn, e.lines = c, bufio.NewScanner(c)
}

func (e *echo) say(line string) {
	e.t.Helper()
	if _, err := fmt.Fprintln(e.conn, line); err != nil {
		e.t.Fatal(err)
	}
}

func (e *echo) hears(line string) {
	e.t.Helper()
	if !e.lines.Scan() || e.lines.Text() != line {
		e.t.Fatalf("heard %q (%v), want %q", e.lines.Text(), e.lines.Err(), line)
	}
}

func TestProxyCut(t *testing.T) {
	e := newEcho(t)
	e.say("before")
	e.hears("before")
	heal := e.proxy.Cut()
	e.say("meanwhile")
	const silence = 50 * time.Millisecond
	_ = e.conn.SetReadDeadline(time.Now().Add(silence))
	if n, err := e.conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d bytes came through a cut", n)
	}
	_ = e.conn.SetReadDeadline(time.Time{})
	e.dial() // is accepted, and silent
	e.say("on a new connection")
	heal()
	e.hears("on a new connection")
	if e.proxy.Conns() != 2 {
		t.Errorf("%d connections, want 2", e.proxy.Conns())
	}
}

func TestProxyDelay(t *testing.T) {
	e := newEcho(t)
	const delay = 50 * time.Millisecond
	e.proxy.Delay(delay)
	start := time.Now()
	e.say("late")
	e.hears("late")
	if took := time.Since(start); took < delay {
		t.Errorf("an answer took %v, want %v at least", took, delay)
	}
	e.proxy.Delay(0)
	e.say("again")
	e.hears("again")
}

func TestProxyDropReply(t *testing.T) {
	for name, drop := range map[string]func(*Proxy){
		"next": (*Proxy).DropReply,
		"chosen": func(p *Proxy) {
			p.DropReplyTo(func(request []byte) bool { return string(request) == "lost\n" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEcho(t)
			e.say("first")
			e.hears("first")
			drop(e.proxy)
			e.say("lost")
			if e.lines.Scan() {
				t.Fatalf("heard %q in place of an end", e.lines.Text())
			}
			e.dial()
			e.say("second")
			e.hears("second")
		})
	}
}

func TestProxyReset(t *testing.T) {
	e := newEcho(t)
	e.say("first")
	e.hears("first")
	e.proxy.Reset()
	if e.lines.Scan() {
		t.Fatalf("heard %q on a connection that was reset", e.lines.Text())
	}
}
