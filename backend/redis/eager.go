package redis

import (
	"net"
	"runtime"
	"syscall"
	"time"
)

const (
	// spin is for how long a connection looks for a reply. To have a goroutine wait,
	// and perhaps a processor sleep, and to wake both up costs about as much.
	spin = 50 * time.Microsecond

	// maxSkip bounds how many replies are not looked for after some that took longer.
	maxSkip = 1023
)

// An eager connection looks for a while whether a reply comes before its goroutine
// waits for it, as long as replies do come so soon: from a server nearby that has
// little to do. Of one that takes longer it expects the same of the next, and looks
// less and less often, so that it wastes nothing worth mentioning.
type eager struct {
	net.Conn
	raw  syscall.RawConn       // nil: there is no way to look
	look func(fd uintptr) bool // made once, because it would have to be made each time
	into []byte
	n    int
	soon bool // the next read is for a reply to look out for
	skip int  // so many replies are not looked for
	late int  // how many that were last time; 0: the last one came soon
}

func newEager(conn net.Conn) *eager {
	e := &eager{Conn: conn}
	if c, ok := conn.(syscall.Conn); ok && canLook && runtime.GOMAXPROCS(0) > 1 {
		e.raw, _ = c.SyscallConn()
	}
	e.look = e.lookFor
	return e
}

// Read implements io.Reader.
func (e *eager) Read(p []byte) (int, error) {
	if e.soon && e.raw != nil && e.mayLook() {
		e.into, e.n = p, 0
		err := e.raw.Read(e.look)
		e.into = nil
		if err == nil && e.n > 0 {
			e.late = 0
			return e.n, nil
		}
		e.late = min(2*e.late+1, maxSkip)
		e.skip = e.late
	}
	return e.Conn.Read(p) // also for what ended the look
}

func (e *eager) mayLook() bool {
	if e.skip > 0 {
		e.skip--
		return false
	}
	return true
}

// lookFor reads from a socket that does not block.
func (e *eager) lookFor(fd uintptr) bool {
	for end := time.Now().Add(spin); ; {
		n, empty := readNow(fd, e.into)
		if !empty {
			e.n = n
			return true
		}
		if time.Now().After(end) {
			return true // it is not waited for here
		}
	}
}
