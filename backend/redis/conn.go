package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// The bounds of a reply. The client library makes room for any number that a reply begins
// with, panics on some, and calls itself for what is nested.
const (
	maxReply = 16 << 20 // bytes, with itemSize for each item of its lists
	maxDepth = 16       // of lists in lists
	itemSize = 16
)

var errOversized = errors.New("the server's reply is beyond all bounds")

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// What a server does that has TLS where the URL says that it has none, or the other way
// round. One without TLS waits for the rest of what it takes for a command.
var (
	errNoTLS   = errors.New("no TLS handshake: if the server has no TLS, use redis:// in place of rediss://")
	errTLS     = errors.New("the server speaks TLS: use rediss:// in place of redis://")
	errUnheard = errors.New("the server has closed the connection before its first answer: if it has TLS, use rediss:// in place of redis://")
)

// tlsAlert begins what a server with TLS answers to a command.
const tlsAlert = 21

// dialerFor connects as the client library does, with connections that bound replies.
func dialerFor(timeout time.Duration, t *tls.Config) dialer {
	dial := redis.NewDialer(&redis.Options{DialTimeout: cmp.Or(timeout, 5*time.Second)})
	if t == nil {
		return limited(dial)
	}
	return limited(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, readTimeout))
		defer cancel()
		return encrypt(ctx, conn, addr, t)
	})
}

// encrypt begins TLS with the server at addr.
func encrypt(ctx context.Context, conn net.Conn, addr string, t *tls.Config) (net.Conn, error) {
	if t.ServerName == "" {
		t = t.Clone()
		t.ServerName, _, _ = net.SplitHostPort(addr)
	}
	c := tls.Client(conn, t)
	err := c.HandshakeContext(ctx)
	if err == nil {
		return c, nil
	}
	_ = conn.Close()
	var noTLS tls.RecordHeaderError
	if errors.As(err, &noTLS) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errNoTLS, err)
	}
	return nil, err
}

// limited has connections end at a reply that is beyond the bounds.
func limited(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		b := &limitedConn{Conn: conn, heard: network == "unix" || isEncrypted(conn)}
		if raw, ok := conn.(syscall.Conn); ok {
			return &limitedSocket{b, raw}, nil
		}
		return b, nil
	}
}

func isEncrypted(conn net.Conn) bool {
	_, ok := conn.(*tls.Conn)
	return ok
}

// A limitedConn reads along.
type limitedConn struct {
	net.Conn
	limits replyLimits
	heard  bool  // the server has answered, or it cannot have TLS
	err    error // why no more is read
}

// Read implements net.Conn.
func (c *limitedConn) Read(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(b)
	if !c.heard {
		switch {
		case n > 0 && b[0] == tlsAlert:
			return 0, c.fail(errTLS)
		case n == 0 && err == io.EOF:
			return 0, c.fail(fmt.Errorf("%w: %w", errUnheard, err))
		}
		c.heard = n > 0
	}
	if good := c.limits.accept(b[:n]); good < n {
		return good, c.fail(errOversized)
	}
	return n, err
}

func (c *limitedConn) fail(err error) error {
	c.err = err
	_ = c.Conn.Close()
	return err
}

// A limitedSocket lets the client library see whether its socket is still open.
type limitedSocket struct {
	*limitedConn
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c *limitedSocket) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

// replyLimits says where in a reply a stream of bytes is.
type replyLimits struct {
	kind  byte   // of the line; 0: it begins
	line  []byte // what follows, where that is a number
	text  int    // bytes of a text that are to come
	lists []int  // the items of each that are to come
	total int    // of the reply so far
}

// accept returns how many of the bytes are within the bounds: all, or those before the
// first that is not.
func (f *replyLimits) accept(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch {
		case f.text == 0:
			if !f.next(b[i]) {
				return i
			}
		case f.text <= len(b)-i:
			i, f.text = i+f.text-1, 0
			f.endItem()
		default:
			f.text -= len(b) - i
			return len(b)
		}
	}
	return len(b)
}

// next takes a byte of a line.
func (f *replyLimits) next(c byte) bool {
	f.total++
	switch {
	case f.kind == 0:
		f.kind, f.line = c, f.line[:0]
		if len(f.lists) == 0 {
			f.total = 0
		}
	case c == '\n':
		return f.endLine() && f.total <= maxReply
	case f.kind != '+' && f.kind != '-':
		f.line = append(f.line, c)
	}
	return f.total <= maxReply
}

// endLine takes what a line says of what follows it.
func (f *replyLimits) endLine() bool {
	kind := f.kind
	f.kind = 0
	isText, isList := strings.IndexByte("$=!", kind) >= 0, strings.IndexByte("*~>%|", kind) >= 0
	if !isText && !isList {
		f.endItem()
		return true
	}
	size, err := strconv.Atoi(strings.TrimSuffix(string(f.line), "\r"))
	if err != nil || size > maxReply {
		return false
	}
	size = max(size, -1)
	switch kind {
	case '%':
		size *= 2
	case '|': // an attribute, and the item that it is about
		size = 2*max(size, 0) + 1
	}
	switch {
	case isText && size >= 0:
		f.text = size + len("\r\n")
		f.total += size
	case isList && size > 0:
		f.lists = append(f.lists, size)
		f.total += size * itemSize
	default: // there is nothing
		f.endItem()
	}
	return len(f.lists) <= maxDepth
}

// endItem also ends the lists of which it was the last.
func (f *replyLimits) endItem() {
	for n := len(f.lists) - 1; n >= 0; n-- {
		f.lists[n]--
		if f.lists[n] > 0 {
			return
		}
		f.lists = f.lists[:n]
	}
}
