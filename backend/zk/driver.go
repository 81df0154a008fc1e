package zk

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// hosts gives the servers to the driver in turn. The driver's own resolves names and
// pauses between rounds, which dial does.
type hosts struct {
	servers []string
	turn    int
	ended   <-chan struct{} // with the session
}

// Init implements the driver's HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

// Len implements the driver's HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements the driver's HostProvider. The second result makes the driver check
// whether it was closed.
func (h *hosts) Next() (server string, checkClosed bool) {
	server = h.servers[h.turn%len(h.servers)]
	h.turn++
	return server, isClosed(h.ended)
}

// Connected implements the driver's HostProvider.
func (h *hosts) Connected() {}

// logger takes what the driver logs.
type logger struct{ *slog.Logger }

func (l logger) Printf(format string, args ...any) {
	l.Debug("dlock: zookeeper: " + fmt.Sprintf(format, args...))
}

// A drain keeps answers from a driver that is being closed. The driver returns from its
// requests then, but goes on to read answers into results that the callers already use.
// The driver finishes the answer that it is reading before it is closed. After that it
// gets the answer to its closeSession only.
type drain struct {
	mu         sync.Mutex
	isReading  bool // the driver has a message that it has not finished
	isDraining bool
	idle       chan struct{} // closed when the driver has finished it; nil: nobody waits
	closeID    uint32        // the number of the closeSession
	closeSent  bool
}

// drainTimeout is for a message of which the server has sent a part.
const drainTimeout = time.Second

// start waits until the driver has finished the message that it is reading. It reports
// false if that takes too long.
func (d *drain) start() bool {
	d.mu.Lock()
	d.isDraining = true
	if !d.isReading {
		d.mu.Unlock()
		return true
	}
	idle := make(chan struct{})
	d.idle = idle
	d.mu.Unlock()
	return awaitClosed(idle, drainTimeout)
}

func (d *drain) noteRequest(request []byte) {
	if codeOf(request) != closeSession {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeID, d.closeSent = binary.BigEndian.Uint32(request[4:]), true
}

// setIdle notes that the driver has finished a message, or the connection has ended.
func (d *drain) setIdle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isReading = false
	if d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// admits reports whether the driver may read a message. It then counts as reading it. The
// head is the length of the message and the number of the request.
func (d *drain) admits(head []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDraining && !(d.closeSent && binary.BigEndian.Uint32(head[4:]) == d.closeID) {
		return false
	}
	d.isReading = true
	return true
}

// A watchReset delays answers on a new connection until the driver has sent the server
// the list of its watches. With the list the driver sends the number of the last
// transaction that it has seen, and each answer changes that number without a lock. The
// server would not report an event before that number.
type watchReset struct {
	sent      chan struct{} // closed when the list is sent; nil: there are no watches
	isSent    bool          // known to the writer
	isDelayed bool          // known to the reader
}

// watchResetTimeout is for a driver that does not send the list.
const watchResetTimeout = time.Second

// start is called with s.mu held when the server has answered with the session, and
// before anything else is read or written.
func (r *watchReset) start(s *session) {
	for _, w := range s.watches {
		if isClosed(w.set) {
			r.sent = make(chan struct{})
			return
		}
	}
}

func (r *watchReset) noteRequest(request []byte) {
	if r.sent != nil && !r.isSent && codeOf(request) == setWatches {
		r.isSent = true
		close(r.sent)
	}
}

// delay waits with the first message that has the number of a transaction. The head is
// the length of the message, the number of the request, and that of the transaction.
func (r *watchReset) delay(s *session, head []byte) {
	answers := int32(binary.BigEndian.Uint32(head[4:])) >= 0 && int64(binary.BigEndian.Uint64(head[8:])) > 0
	if r.sent == nil || r.isDelayed || !answers {
		return
	}
	r.isDelayed = true
	select {
	case <-r.sent:
	case <-s.ended:
	case <-time.After(watchResetTimeout):
	}
}
