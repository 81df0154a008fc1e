package redis

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// connected returns an eager connection, as it is with so many processors, and
// its other end.
func connected(t *testing.T, processors int) (*eager, net.Conn) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	e := newEager(must[net.Conn](t)(net.Dial("tcp", l.Addr().String())))
	other := must[net.Conn](t)(l.Accept())
	t.Cleanup(func() { _, _ = e.Close(), other.Close() })
	e.soon = true
	return e, other
}

// TestEagerRead has replies come before a connection looks for them, after that,
// and never.
func TestEagerRead(t *testing.T) {
	e, other := connected(t, 2)
	p := make([]byte, 8)
	for i := range 3 {
		must[int](t)(other.Write([]byte("reply")))
		eventually(t, "a reply is found", func() bool {
			e.skip = 0
			n := must[int](t)(e.Read(p))
			return string(p[:n]) == "reply"
		})
		if i == 0 {
			e.skip = 0
			time.AfterFunc(5*spin, func() { _, _ = other.Write([]byte("late")) })
			must[int](t)(e.Read(p))
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
	e, other := connected(t, 2)
	tries, p := 0, make([]byte, 8)
	read := func() {
		must[int](t)(other.Write([]byte{1}))
		must[int](t)(e.Read(p))
	}
	e.look = func(uintptr) bool { tries++; return true } // which finds nothing
	for range 100 {
		read()
	}
	if tries != 6 { // the 1st reply, the 3rd, the 7th, the 15th, 31st and 63rd
		t.Errorf("looked for %d of 100 replies that were late", tries)
	}
	e.look = e.lookFor
	eventually(t, "a reply comes soon", func() bool {
		e.skip = 0
		read()
		return e.late == 0
	})
	e.look = func(uintptr) bool { tries++; return true }
	read()
	if tries != 7 {
		t.Error("a reply is not looked for after one that came soon")
	}
}

// TestEagerAlone does not look where that would take the only processor.
func TestEagerAlone(t *testing.T) {
	if e, _ := connected(t, 1); e.raw != nil {
		t.Error("it looks")
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
