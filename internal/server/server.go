package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startLimit = 2 * time.Minute
	probeLimit = 2 * time.Second
	logTail    = 4096 // bytes of the log that go into an error
)

// A Kind says how one kind of server is started and asked for its health. It is
// one of [Redis], [Etcd], [ZooKeeper] and [Postgres], whose fields are options
// with useful zero values.
type Kind interface {
	// name is what errors call the server.
	name() string
	// command prepares dir, which is empty before the first start, and returns
	// what to run there. The caller sets the output and adds to the environment.
	command(dir string, port int) (*exec.Cmd, error)
	// probe returns nil when the server at addr takes requests.
	probe(ctx context.Context, addr string) error
	// version is asked of the healthy server at addr or of its program.
	version(ctx context.Context, addr string) (string, error)
	// shutdown is the signal that ends the server in good order.
	shutdown() syscall.Signal
}

// A Server is a running child process. Its methods are safe for concurrent use;
// those that change its state run one after the other.
type Server struct {
	kind Kind
	dir  string
	port *port
	bus  *port // for the other nodes of a cluster, or nil

	mu      sync.Mutex
	proc    *process // nil before the first start
	version string
}

// Start runs a server for one test and closes it at the end of that test.
func Start(t testing.TB, kind Kind) *Server {
	t.Helper()
	s, err := New(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// New runs a server and returns when it is healthy. An error holds the end of
// the server's log, or says how to install what is missing.
func New(kind Kind) (*Server, error) {
	s, err := place(kind)
	if err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// place gives a server its directory and its port.
func place(kind Kind) (*Server, error) {
	reaper, err := theReaper()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(reaper.dir, kind.name()+"-")
	if err != nil {
		return nil, err
	}
	// A server that runs as another user reaches its data through here.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	s := &Server{kind: kind, dir: dir}
	if _, ok := kind.(clusterNode); ok {
		s.port, s.bus, err = reserveWithBus()
	} else {
		s.port, err = reservePort(0)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Addr is where the server listens, as "127.0.0.1:port", the same for its whole life.
func (s *Server) Addr() string { return s.port.addr() }

// Version is the version of the server's program, such as "7.0.15".
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Pid is the number of the server's main process, of the last one when it does
// not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// Pause stops all processes of the server with SIGSTOP and returns when none
// runs any more. Its connections stay open.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pause()
}

// Resume lets a paused server run on.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.resume()
}

// Kill ends all processes of the server with SIGKILL, also when it is paused. A
// server that does not run stays as it is.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.kill()
}

// Stop ends the server in good order, also when it is paused. A server that does
// not run stays as it is.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.terminate(s.kind.shutdown())
}

// Restart starts the server again on its port and returns when it is healthy. A
// server that still runs is stopped in good order first. Without keepData the
// server begins as an empty one; with it, it finds what its options made it store.
func (s *Server) Restart(keepData bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.terminate(s.kind.shutdown()); err != nil {
		return err
	}
	if !keepData {
		if err := os.RemoveAll(s.dataDir()); err != nil {
			return err
		}
	}
	return s.begin()
}

// Close kills the server and removes its data. Closing again does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.kill(); err != nil {
		return err
	}
	s.port.release()
	if s.bus != nil {
		s.bus.release()
	}
	return os.RemoveAll(s.dir)
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// begin starts the process and waits until it is healthy. One that does not get
// there is killed.
func (s *Server) begin() error {
	if err := s.launch(); err != nil {
		return fmt.Errorf("dlock: %s does not start: %w", s.kind.name(), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := s.awaitHealth(ctx); err != nil {
		return errors.Join(s.failure(err), s.proc.kill())
	}
	return nil
}

func (s *Server) launch() error {
	if err := os.MkdirAll(s.dataDir(), 0o700); err != nil {
		return err
	}
	cmd, err := s.kind.command(s.dataDir(), s.port.number)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(cmd.Env, environment(s.dataDir())...)
	proc, err := start(cmd)
	if err != nil {
		return err
	}
	s.proc = proc
	return nil
}

// environment is all that a server sees of ours, so that no PGDATA or ETCD_NAME
// of the developer changes it.
func environment(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
}

func (s *Server) awaitHealth(ctx context.Context) error {
	for {
		err := s.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.proc.done:
			return errors.New("it ended before it was healthy")
		case <-ctx.Done():
			return fmt.Errorf("it is not healthy after %v: %w", startLimit, err)
		case <-time.After(pollInterval):
		}
	}
}

// probe asks whether the server is healthy, and for its version. One that allows a single
// connection refuses the second for as long as it has not closed that of the first.
func (s *Server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	err := s.kind.probe(ctx, s.Addr())
	if err == nil && s.version == "" {
		s.version, err = s.kind.version(ctx, s.Addr())
	}
	return err
}

// failure adds the end of the log to err.
func (s *Server) failure(err error) error {
	log, _ := os.ReadFile(s.logFile()) // without a log the error alone has to do
	return fmt.Errorf("dlock: %s does not start: %w\n%s", s.kind.name(), err, log[max(0, len(log)-logTail):])
}
