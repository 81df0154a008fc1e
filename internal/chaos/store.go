package chaos

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/dlock-go/dlock/internal/clock"
)

// A Store keeps a number for each key, and refuses who comes with a smaller
// fencing token than the greatest it has seen. Workers reach it by a socket.
type Store struct {
	listener net.Listener
	all      sync.WaitGroup

	mu      sync.Mutex
	cells   map[string]*cell
	conns   map[net.Conn]struct{}
	writes  []Write
	refused int
}

type cell struct {
	value int64
	token uint64
}

// A Write is one that the store accepted.
type Write struct {
	At    int64
	Key   string
	Token uint64
	Value int64
}

// NewStore listens on a socket at path.
func NewStore(path string) (*Store, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &Store{listener: l, cells: make(map[string]*cell), conns: make(map[net.Conn]struct{})}
	s.all.Go(s.accept)
	return s, nil
}

func (s *Store) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		s.all.Go(func() { s.serve(conn) })
	}
}

// serve answers "get KEY TOKEN" and "put KEY TOKEN VALUE" with ok and the
// value, or with stale and the greatest token.
func (s *Store) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var verb, key string
		var token uint64
		var value int64
		if n, _ := fmt.Sscan(lines.Text(), &verb, &key, &token, &value); n < 3 {
			return
		}
		if _, err := io.WriteString(conn, s.answer(verb == "put", key, token, value)); err != nil {
			return
		}
	}
}

func (s *Store) answer(put bool, key string, token uint64, value int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[key]
	if c == nil {
		c = new(cell)
		s.cells[key] = c
	}
	if token < c.token {
		s.refused++
		return fmt.Sprintf("stale %d\n", c.token)
	}
	c.token = token
	if put {
		c.value = value
		s.writes = append(s.writes, Write{At: clock.Now(), Key: key, Token: token, Value: value})
	}
	return fmt.Sprintf("ok %d\n", c.value)
}

// Writes returns what was accepted, in order, and how many requests were
// refused.
func (s *Store) Writes() (accepted []Write, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes, s.refused
}

// Close stops listening and ends every connection.
func (s *Store) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.all.Wait()
	return err
}

// A storeConn is a connection to a store, for one goroutine.
type storeConn struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func dialStore(path string) (*storeConn, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &storeConn{conn: conn, lines: bufio.NewScanner(conn)}, nil
}

// ask returns the value, and whether the token was accepted.
func (c *storeConn) ask(format string, args ...any) (value int64, ok bool, err error) {
	if _, err := fmt.Fprintf(c.conn, format+"\n", args...); err != nil {
		return 0, false, err
	}
	if !c.lines.Scan() {
		return 0, false, io.ErrUnexpectedEOF
	}
	var verdict string
	if _, err := fmt.Sscan(c.lines.Text(), &verdict, &value); err != nil {
		return 0, false, err
	}
	return value, verdict == "ok", nil
}
