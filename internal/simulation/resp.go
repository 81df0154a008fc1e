package simulation

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// A peer is a connection to a server, seen from there.
type peer struct {
	server   *server
	conn     net.Conn
	run      int    // of the server
	name     string // that the client has given itself
	resp3    bool
	known    bool            // it has once given a password that counted
	stranger bool            // it has given one that does not, and none before
	asking   bool            // the last command was ASKING
	wrote    int             // the number of the last effect of its commands; guarded by the server's mu
	channels map[string]bool // to which it is subscribed

	deed   deed             // what its last command has done, if faults wait
	before map[string]truth // how locks stood before it
	old    *store           // what the server had

	mu     sync.Mutex // guards what follows: messages come from other connections
	w      *bufio.Writer
	losses []loss // that it was told of, in what has not left yet
}

var errProtocol = errors.New("protocol error")

// serve answers a connection until its end.
func (s *server) serve(c net.Conn) {
	p := &peer{server: s, conn: c, w: bufio.NewWriter(c), channels: make(map[string]bool)}
	if _, says := s.turnsAway(); says {
		p.reply(nil, errCrowded)
		p.flush()
		_ = c.Close()
		return
	}
	s.mu.Lock()
	p.run = s.run
	s.peers[p] = true
	s.mu.Unlock()
	go p.answer(s)
}

// isQuick reports whether the connection is one whose client must not have to wait; see dial.
func (p *peer) isQuick() bool {
	c, simulated := p.conn.(*conn)
	return simulated && c.link.isQuick()
}

// An executor is who answers the commands of its peers.
type executor interface {
	execute(p *peer, cmd string, args []string)
	forget(p *peer)
}

// answer has e answer what comes on the connection of p, until that ends.
func (p *peer) answer(e executor) {
	defer p.conn.Close()
	defer e.forget(p)
	r := bufio.NewReader(p.conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		e.execute(p, strings.ToUpper(args[0]), args[1:])
		p.meet(beforeAnswer)
		if r.Buffered() == 0 {
			p.flush()
			p.tells()
		}
		p.meet(afterAnswer)
	}
}

// readCommand reads a list of texts.
func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readSize(r, '*')
	if err != nil || n < 1 {
		return nil, errors.Join(errProtocol, err)
	}
	args := make([]string, n)
	for i := range args {
		size, err := readSize(r, '$')
		if err != nil || size < 0 {
			return nil, errors.Join(errProtocol, err)
		}
		if args[i], err = readText(r, size); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// readText reads a text of that size, and the end of its line. Most are in the buffer of r, and are
// copied once.
func readText(r *bufio.Reader, size int) (string, error) {
	if r.Buffered() >= size+2 {
		b, _ := r.Peek(size)
		text := string(b)
		_, err := r.Discard(size + 2)
		return text, err
	}
	b := make([]byte, size+2)
	_, err := io.ReadFull(r, b)
	return string(b[:size]), err
}

func readSize(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 4 || line[0] != kind {
		return 0, errProtocol
	}
	return strconv.Atoi(string(line[1 : len(line)-2]))
}

func (p *peer) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.w.Flush()
}

// reply writes what a command has returned.
func (p *peer) reply(reply any, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.line('-', err.Error())
		return
	}
	p.write(reply)
}

// push sends what was not asked for, at once.
func (p *peer) push(all ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pushed(all)
	_ = p.w.Flush()
}

// pushed is called with p.mu held, as write and line are.
func (p *peer) pushed(all []any) {
	kind := byte('*')
	if p.resp3 {
		kind = '>'
	}
	p.line(kind, strconv.Itoa(len(all)))
	for _, e := range all {
		p.write(e)
	}
}

func (p *peer) line(kind byte, text string) {
	_ = p.w.WriteByte(kind)
	_, _ = p.w.WriteString(text)
	_, _ = p.w.WriteString("\r\n")
}

func (p *peer) write(reply any) {
	switch r := reply.(type) {
	case nil:
		if p.resp3 {
			p.line('_', "")
		} else {
			p.line('$', "-1")
		}
	case int64:
		p.line(':', strconv.FormatInt(r, 10))
	case status:
		p.line('+', string(r))
	case string:
		p.line('$', strconv.Itoa(len(r)))
		_, _ = p.w.WriteString(r)
		_, _ = p.w.WriteString("\r\n")
	case []any:
		p.line('*', strconv.Itoa(len(r)))
		for _, e := range r {
			p.write(e)
		}
	case fields:
		if p.resp3 {
			p.line('%', strconv.Itoa(len(r)/2))
		} else {
			p.line('*', strconv.Itoa(len(r)))
		}
		for _, e := range r {
			p.write(e)
		}
	}
}

// fields are names and values in turn.
type fields []any
