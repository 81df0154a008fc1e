package redis

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// fresh is how long a connection that was used is taken to be there.
	fresh = time.Second

	// spare is for how long a deadline may be left as it is.
	spare = grace / 2
)

// A link is a connection that one wire has for itself. The client library makes
// it, logs in, and after each pause sees whether it is still there. All other
// commands go past the library: its pool and the look for news before each of
// them cost as much again as the command.
type link struct {
	client *redis.Client // with this one connection
	dialed atomic.Pointer[net.Conn]
	limit  time.Duration // for the replies to one pipeline

	conn     *eager // nil: not dialed yet
	r        *bufio.Reader
	out      []byte
	awaited  int // replies
	used     time.Time
	deadline time.Time // of conn; zero: not known
	broken   error     // why it is of no use any more
}

// newLink returns a link to the server of a client. It does no I/O.
func newLink(c *redis.Client) *link {
	l := &link{r: bufio.NewReader(nil)}
	o := *c.Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			l.dialed.Store(&conn)
		}
		return conn, err
	}
	o.PoolSize, o.PipelinePoolSize, o.MinIdleConns = 1, -1, 0
	o.Protocol = 2 // nothing comes unasked
	// What the library says is none, it takes for its default when it is asked.
	if o.ReadTimeout <= 0 {
		o.ReadTimeout = time.Minute
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = o.ReadTimeout
	}
	l.limit = o.ReadTimeout
	l.client = redis.NewClient(&o)
	return l
}

// close ends the connection first: as the library closes, it looks at it, and
// would wait for whoever reads, whose deadline it takes away.
func (l *link) close() {
	if conn := l.dialed.Load(); conn != nil {
		_ = (*conn).Close()
	}
	_ = l.client.Close()
}

// isFresh reports whether commands can go past the library.
func (l *link) isFresh(now time.Time) bool {
	return l.conn != nil && (l.awaited > 0 || now.Sub(l.used) < fresh)
}

// push sends commands and reports whether their replies are still to be
// received. It sends them through the library if nothing was sent for a while.
func (l *link) push(batch []*parcel) bool {
	now := time.Now()
	if l.broken == nil && !l.isFresh(now) {
		l.renew(batch)
		return false
	}
	l.out = l.out[:0]
	for _, p := range batch {
		l.out = appendCommand(l.out, p.args)
	}
	l.send(now, len(batch), l.limit/2, l.limit)
	return true
}

// renew has the library carry commands. It dials if it must.
func (l *link) renew(batch []*parcel) {
	l.conn = nil
	l.broken = execOn(l.client, batch)
	if conn := l.dialed.Load(); conn != nil && l.broken == nil {
		l.conn, l.used, l.deadline = newEager(*conn), time.Now(), time.Time{}
		l.r.Reset(l.conn)
	}
}

// send sends what is in l.out, n commands. The connection then waits for replies
// for no less than least and no more than most.
func (l *link) send(now time.Time, n int, least, most time.Duration) {
	l.awaited += n
	l.used = now
	l.wait(now, least, most)
	if l.broken == nil {
		_, l.broken = l.conn.Write(l.out)
	}
}

// wait sets the deadline, unless it is in the limits: that costs as much as a
// few hundred bytes on the wire.
func (l *link) wait(now time.Time, least, most time.Duration) {
	if l.broken != nil || !l.deadline.Before(now.Add(least)) && !l.deadline.After(now.Add(most)) {
		return
	}
	l.deadline = now.Add(most)
	l.broken = l.conn.SetDeadline(l.deadline)
}

// receive takes the reply to p.
func (l *link) receive(p *parcel) {
	l.awaited--
	if l.broken != nil {
		p.err = l.broken
		return
	}
	p.reply, p.err = readReply(l.r)
	if _, said := replied(p.err); !said {
		l.broken = p.err
	}
}

// post sends a command at once. The reply has still to be received.
func (l *link) post(now time.Time, args []any) {
	l.out = appendCommand(l.out[:0], args)
	l.send(now, 1, grace, grace+spare)
}

// hasCome reports whether it is known within a moment after post what has become
// of the command. One that is prompt is looked out for.
func (l *link) hasCome(k kind) bool {
	if l.broken != nil {
		return true
	}
	l.conn.soon = k == prompt
	_, err := l.r.Peek(1)
	l.conn.soon = false
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	l.broken = err
	return true
}
