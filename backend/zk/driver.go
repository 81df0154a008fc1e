package zk

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	gozk "github.com/go-zookeeper/zk"
)

// hosts gives the servers to the driver in turn. The driver's own resolves names and
// pauses between rounds, which dial does.
type hosts struct {
	servers []string
	turn    int
	ctx     context.Context // of the session
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
	return server, h.ctx.Err() != nil
}

// Connected implements the driver's HostProvider.
func (h *hosts) Connected() {}

// logger takes what the driver logs.
type logger struct{ *slog.Logger }

func (l logger) Printf(format string, args ...any) {
	l.Debug("dlock: zookeeper: " + fmt.Sprintf(format, args...))
}

// createContainer has the driver create a container. If the driver is closed meanwhile it
// returns at once, with a part of an answer that it may still be reading.
func (s *session) createContainer(dir string, acl []gozk.ACL) error {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return errSessionEnded
	}
	s.containers.Add(1)
	s.mu.Unlock()
	defer s.containers.Done()
	_, err := s.client.CreateContainer(dir, nil, gozk.FlagContainer, acl)
	return err
}

// containersTimeout is how long a session that has ended waits for containers.
const containersTimeout = time.Second

// closeClient closes the driver, which closes the session on the server if it has a
// connection.
func (s *session) closeClient() {
	created := make(chan struct{})
	go func() {
		defer close(created)
		s.containers.Wait()
	}()
	if !awaitClosed(created, containersTimeout) {
		s.closeConnection()
		<-created
	}
	s.client.Close() // may take a second
	s.closeConnection()
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
	case <-s.ctx.Done():
	case <-time.After(watchResetTimeout):
	}
}
