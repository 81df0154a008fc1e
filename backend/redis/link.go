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

	conn     net.Conn // nil: not dialed yet
	r        *bufio.Reader
	out      []byte
	used     time.Time
	deadline time.Time // of conn; zero: not known
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
	l.client = redis.NewClient(&o)
	l.limit = o.ReadTimeout
	if l.limit <= 0 { // the URL asks for no limit
		l.limit = time.Minute
	}
	return l
}

func (l *link) close() { _ = l.client.Close() }

// isFresh reports whether commands can go past the library.
func (l *link) isFresh(now time.Time) bool { return l.conn != nil && now.Sub(l.used) < fresh }

// exec has every parcel end with a reply or an error of its own. It returns an
// error if l is of no use any more.
func (l *link) exec(batch []*parcel) error {
	now := time.Now()
	if !l.isFresh(now) {
		return l.renew(batch)
	}
	l.out = l.out[:0]
	for _, p := range batch {
		l.out = appendCommand(l.out, p.args)
	}
	err := l.send(now, l.limit/2, l.limit)
	for _, p := range batch {
		if err == nil {
			err = l.receive(p)
		} else {
			p.err = err
		}
	}
	return err
}

// renew sends through the library, which dials if it must.
func (l *link) renew(batch []*parcel) error {
	l.conn = nil
	err := execOn(l.client, batch)
	if conn := l.dialed.Load(); conn != nil && err == nil {
		l.conn, l.used, l.deadline = *conn, time.Now(), time.Time{}
		l.r.Reset(l.conn)
	}
	return err
}

// send sends what is in l.out. The connection then waits for its replies for no
// less than least and no more than most.
func (l *link) send(now time.Time, least, most time.Duration) error {
	l.used = now
	if err := l.wait(now, least, most); err != nil {
		return err
	}
	_, err := l.conn.Write(l.out)
	return err
}

// wait sets the deadline, unless it is in the limits: that costs as much as a
// few hundred bytes on the wire.
func (l *link) wait(now time.Time, least, most time.Duration) error {
	if !l.deadline.Before(now.Add(least)) && !l.deadline.After(now.Add(most)) {
		return nil
	}
	l.deadline = now.Add(most)
	return l.conn.SetDeadline(l.deadline)
}

// receive takes the reply to p. It returns an error if that is none.
func (l *link) receive(p *parcel) error {
	p.reply, p.err = readReply(l.r)
	if _, said := replied(p.err); said {
		return nil
	}
	return p.err
}

// post sends a command at once and reports whether the reply is there within a
// moment. If it is not, that has still to be received.
func (l *link) post(now time.Time, args []any) (come bool, err error) {
	l.out = appendCommand(l.out[:0], args)
	if err := l.send(now, grace, grace+spare); err != nil {
		return false, err
	}
	_, err = l.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}
