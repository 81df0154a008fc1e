package redis

import (
	"io"
	"net"
	"testing"
	"time"
)

// connected returns an eager connection and its other end.
func connected(t *testing.T) (*eager, net.Conn) {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	e := newEager(must[net.Conn](t)(net.Dial("tcp", l.Addr().String())))
	other := must[net.Conn](t)(l.Accept())
	t.Cleanup(func() { _, _ = e.Close(), other.Close() })
	e.soon = true
	return e, other
}

// looks has e read what comes late, and reports whether it has looked for it.
func looks(t *testing.T, e *eager, other net.Conn) bool {
	t.Helper()
	before := e.skip
	time.AfterFunc(5*spin, func() { _, _ = other.Write([]byte{1}) })
	must[int](t)(e.Read(make([]byte, 8)))
	return before == 0
}

// TestEagerRead has replies come before a connection looks for them, after that,
// and never.
func TestEagerRead(t *testing.T) {
	e, other := connected(t)
	p := make([]byte, 8)
	for i := range 3 {
		must[int](t)(other.Write([]byte("reply")))
		eventually(t, "a reply is found", func() bool {
			e.skip = 0
			n := must[int](t)(e.Read(p))
			return string(p[:n]) == "reply"
		})
		if i == 0 {
			looks(t, e, other)
		}
	}
	must[any](t)(nil, e.SetDeadline(time.Now().Add(time.Millisecond)))
	e.skip = 0
	if _, err := e.Read(p); !err.(net.Error).Timeout() {
		t.Errorf("no reply in time: %v", err)
	}
	must[any](t)(nil, e.SetDeadline(time.Time{}))
	must[any](t)(nil, other.Close())
	e.skip = 0
	if _, err := e.Read(p); err != io.EOF {
		t.Errorf("the other end is closed: %v", err)
	}
}

// TestEagerGivesUp has a server that is slow looked at less and less often, and as
// before once it has been fast.
func TestEagerGivesUp(t *testing.T) {
	e, other := connected(t)
	tries := 0
	for range 100 {
		if looks(t, e, other) {
			tries++
		}
	}
	if tries < 2 || tries > 8 {
		t.Errorf("looked for %d of 100 replies that were late", tries)
	}
	p := make([]byte, 8)
	eventually(t, "a reply comes soon", func() bool {
		e.skip = 0
		must[int](t)(other.Write([]byte{1}))
		must[int](t)(e.Read(p))
		return e.late == 0
	})
	if !looks(t, e, other) {
		t.Error("a reply is not looked for after one that came soon")
	}
}

// TestEagerPipe reads from a connection that is no socket.
func TestEagerPipe(t *testing.T) {
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	e := newEager(here)
	e.soon = true
	go func() { _, _ = there.Write([]byte{1}) }()
	if n := must[int](t)(e.Read(make([]byte, 8))); n != 1 {
		t.Errorf("read %d bytes", n)
	}
}
