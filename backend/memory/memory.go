// Package memory keeps locks in the memory of one process, for tests and for
// programs of one process.
//
// # URL
//
// memory:// opens a server of its own; memory://name opens the server of that
// name, which all clients of the process share that name it while one of them
// is open. There are no parameters.
//
// # Guarantees
//
// All promises of package dlock hold between the clients of one server. Other
// processes know nothing of these locks. Nothing waits on anything but
// channels and timers, so that testing/synctest can drive a program through
// minutes of watchdog, loss and queueing in an instant. A [Server] can forget
// a lock or all of them, stop answering, or have a wrong clock, and a [Backend]
// can be cut off or fail a call, so that a program's own tests can see what it
// does on a bad day.
//
// A server knows everything that can be asked about a lock: labels, clients, modes,
// entries, times, tokens, and the order of those who wait.
package memory

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Backend is one client's connection to a Server.
type Backend struct {
	server *Server
	faults faults // of this client alone
	onStop func()

	stop   sync.Once
	closed chan struct{}
	gone   bool // as the server knows; guarded by its mutex
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Reenterer     = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.Transferer    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.Expirer       = (*Backend)(nil)
	_ backend.TokenRegister = (*Backend)(nil)
	_ backend.Examiner      = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// New returns a client of s, or of a server of its own if s is nil.
func New(s *Server) *Backend {
	if s == nil {
		s = NewServer()
	}
	return &Backend{server: s, closed: make(chan struct{})}
}

// Close implements backend.Backend.
func (b *Backend) Close(context.Context) error {
	b.stop.Do(func() {
		close(b.closed)
		b.server.removeClient(b)
		if b.onStop != nil {
			b.onStop()
		}
	})
	return nil
}

// exchange has the server do something, with a request before and a reply after that
// may each be lost.
func (b *Backend) exchange(ctx context.Context, do func() error) error {
	if err := b.send(ctx); err != nil {
		return err
	}
	err := do()
	if lost := b.receive(ctx); lost != nil {
		return lost
	}
	return err
}

// update has the server change h if it still stands. It lasts no longer than h.TTL.
func (b *Backend) update(ctx context.Context, h *backend.Hold, do func(*lock, *hold, time.Duration)) error {
	ctx, cancel := backend.Bound(ctx, h.TTL)
	defer cancel()
	return b.exchange(ctx, func() error { return b.server.update(h, do) })
}

// A Server keeps the locks that its clients share. NewServer makes it.
type Server struct {
	start  time.Time
	outage outage // for all clients
	ops    atomic.Int64

	mu    sync.Mutex
	locks map[string]*lock // those that are held or waited for
	most  int              // how many were in locks since that was made
	token uint64           // the last one given out
	drawn uint64           // the last one that a holder has got by Transfer
	ahead time.Duration    // what its clock is ahead by
	since time.Duration    // how far back it knows everything; zero: nobody has asked
}

// NewServer returns a server without locks.
func NewServer() *Server {
	return &Server{start: time.Now(), locks: make(map[string]*lock)}
}

// now is how long there has been this server. All its times are such.
func (s *Server) now() time.Duration { return time.Since(s.start) }

// clock is what the server's clock says at a time of its own.
func (s *Server) clock(at time.Duration) time.Time { return s.start.Add(at + s.ahead) }

// Ops returns how many requests have been sent to the server.
func (s *Server) Ops() int64 { return s.ops.Load() }

// Names returns how many names the server knows anything of.
func (s *Server) Names() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.locks)
}

// Waiting returns how many requests wait for name.
func (s *Server) Waiting(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.locks[name]; l != nil {
		return len(l.queue)
	}
	return 0
}

// Entries returns how often the exclusive holder of name has entered it.
func (s *Server) Entries(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.locks[name]; l != nil && l.writer != nil {
		return max(l.writer.entries, 1)
	}
	return 0
}
