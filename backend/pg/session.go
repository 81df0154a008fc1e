package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// maxGroup bounds what goes out at once, so that neither side's buffers fill
// up while the other one writes.
const maxGroup = 256

var (
	errSilent   = errors.New("the server did not answer")
	errProtocol = errors.New("unexpected answer of the server")
	errRetired  = errors.New("the connection was not needed any more")
	errMoved    = errors.New("the connection leads to another backend, or to a standby")
)

// A call is one op that somebody wants run.
type call struct {
	op    op
	arg   int64
	rank  int64         // the second argument
	alone bool          // not grouped any more: a group with it has failed
	sent  time.Time     // zero: it never was
	value int64         // the answer
	err   error         // a *pgconn.PgError, or why the session is gone
	then  sequel        // called in place of done
	done  chan struct{} // receives once

	answered bool // for who reads
}

// A sequel is what an answer leads to.
type sequel interface{ follow(c *call) }

type sequelFunc func(c *call)

func (f sequelFunc) follow(c *call) { f(c) }

var ignore = sequelFunc(func(*call) {})

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newCall(o op, arg int64) *call {
	c := calls.Get().(*call)
	*c = call{op: o, arg: arg, done: c.done}
	return c
}

func (c *call) deliver() {
	c.answered = true
	if c.then != nil {
		c.then.follow(c)
		return
	}
	c.done <- struct{}{}
}

// A session is one connection. What its callers queue while an exchange with
// the server is under way goes out together in the next one. Whatever the
// server says unasked, such as its end, is read at once.
type session struct {
	backend *Backend
	pg      *pgconn.PgConn // only good for cancel requests
	conn    net.Conn
	front   *pgproto3.Frontend
	pid     uint32
	version int64 // of the server, as a number
	leased  bool  // the server knows of leases

	// Guarded by backend.mu.
	purpose purpose
	users   int // grants and requests
	grants  map[*grant]struct{}
	single  bool // it has one grant, which it has waited for

	claims atomic.Int32 // that it has

	writing sync.Mutex // taken after mu; held while the buffer is sent

	mu sync.Mutex
	reading
	ttl     time.Duration
	queue   []*call
	again   []*call     // to be queued before them, when the exchange is over
	flight  []statement // sent and unanswered
	first   int         // of them, of the transaction that is being answered
	at      int         // which of them is being answered
	bind    pgproto3.Bind
	buf     []byte
	sent    time.Time // of what is in flight
	proven  time.Time // when what was last answered had been sent
	failed  error     // of the statement being answered
	renewal *renewal  // under way
	dead    error
}

// start queues calls, which go out together. They are answered even if the session
// ends.
func (s *session) start(list ...*call) { s.submit(false, list...) }

// submit queues calls. It reports whether the caller, who offers it, is now the one
// who reads.
func (s *session) submit(offers bool, list ...*call) (reads bool) {
	s.mu.Lock()
	if err := s.dead; err != nil {
		s.mu.Unlock()
		for _, c := range list {
			c.err = err
			c.deliver()
		}
		return false
	}
	s.queue = append(s.queue, list...)
	if len(s.flight) > 0 {
		s.mu.Unlock()
		return false
	}
	if reads = offers && s.mayBegin(); !reads {
		s.alert()
	}
	s.send()
	return reads
}

// do runs one op and waits for the answer until ctx is done. It may be that
// the op is run even so.
func (s *session) do(ctx context.Context, o op, arg int64) (*call, error) {
	c := newCall(o, arg)
	s.drive(ctx, c, time.Time{})
	select {
	case <-c.done:
		return c, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run runs one op and waits for the answer, or for the end of the session.
func (s *session) run(o op, arg, rank int64) (int64, error) {
	c := newCall(o, arg)
	defer calls.Put(c)
	c.rank = rank
	s.start(c)
	<-c.done
	return c.value, c.err
}

// send sends what is queued. It is called with s.mu held and returns without.
func (s *session) send() {
	s.group()
	s.writing.Lock()
	defer s.writing.Unlock()
	limit := s.ttl
	s.sent = time.Now()
	for i := range s.flight {
		st := &s.flight[i]
		s.encode(st)
		for _, c := range st.calls {
			c.sent = s.sent
		}
		if st.op.waits() {
			limit = s.ttl + s.backend.opts.Slice
		}
	}
	s.setDeadline(s.sent.Add(limit))
	s.mu.Unlock()
	if s.front.Flush() != nil {
		_ = s.conn.Close() // the reader finds out
	}
}

func (s *session) encode(st *statement) {
	s.buf = st.bind(&s.bind, s.buf)
	s.front.SendBind(&s.bind)
	s.front.SendExecute(&pgproto3.Execute{})
	if st.ends {
		s.front.SendSync(&pgproto3.Sync{})
	}
}

// group turns the queue into an exchange. What may be run for many keys at once is
// one statement, and all of that is one transaction. What the failure of another
// statement must not undo, or make wait, follows, each a transaction of its own.
func (s *session) group() {
	n := min(len(s.queue), maxGroup)
	for _, c := range s.queue[:n] {
		if !c.alone && !c.op.goesAlone() {
			s.join(c)
		}
	}
	if k := len(s.flight) - 1; k >= 0 {
		s.flight[k].ends = true
	}
	for i := range s.flight {
		s.flight[i].many = len(s.flight[i].calls) > 1
	}
	for _, c := range s.queue[:n] {
		if c.alone || c.op.goesAlone() {
			s.separate(c)
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
	s.first, s.at, s.failed = 0, 0, nil
}

// join adds c to a statement of its kind, or to the end as one of its own.
func (s *session) join(c *call) {
	if groups[c.op] != "" {
		for i := range s.flight {
			if st := &s.flight[i]; st.op == c.op {
				st.calls = append(st.calls, c)
				return
			}
		}
	}
	s.add(c)
}

// separate makes c a transaction of its own. If c was part of a statement that
// failed, that may have done what c is to do: what it may have taken is given back
// first, and what it may have given back is not told of.
func (s *session) separate(c *call) {
	undo := c.op.undo()
	switch {
	case !c.alone || undo == ops:
	case c.op == unlockExclusive || c.op == unlockShared:
		c.op = undo
	default:
		s.add(&call{op: undo, arg: c.arg, then: ignore})
	}
	s.add(c).ends = true
}

// add appends a statement, in the memory of an earlier one if there is any.
func (s *session) add(c *call) *statement {
	n := len(s.flight)
	if n < cap(s.flight) {
		s.flight = s.flight[:n+1]
	} else {
		s.flight = append(s.flight, statement{})
	}
	st := &s.flight[n]
	st.form, st.rows, st.ends = form{op: c.op}, 0, false
	st.calls = append(st.calls[:0], c)
	return st
}

// read takes what the server says until the session is over, whenever no caller
// does.
func (s *session) read() {
	timer := time.NewTimer(shortNap)
	for {
		idle, err := s.step()
		if err != nil {
			s.end(err)
			return
		}
		if idle {
			s.rest(timer)
		}
	}
}

// step takes one message. When it reports idle nothing is under way any more,
// and nobody reads.
func (s *session) step() (idle bool, err error) {
	m, err := s.front.Receive()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, s.overdue()
	case err != nil:
		return false, err
	}
	return s.take(m)
}

// overdue says what a deadline that has passed means, nil if it has been moved.
// A session that nobody uses is closed.
func (s *session) overdue() error {
	s.mu.Lock()
	now := time.Now()
	moved, waiting := now.Before(s.deadline), len(s.flight) > 0
	if !moved && !waiting {
		s.deadline = now.Add(s.ttl / 2)
	}
	s.arm(s.deadline)
	s.mu.Unlock()
	switch {
	case moved:
		return nil
	case waiting:
		return errSilent
	case s.backend.retire(s):
		s.bye()
		return errRetired
	case s.keepsItself():
		s.renew(now)
	}
	return nil
}

// keepsItself reports whether s is used although nobody renews a hold of it.
func (s *session) keepsItself() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserved || s.claims.Load() > 0
}

// take handles one message.
func (s *session) take(m pgproto3.BackendMessage) (idle bool, err error) {
	switch m := m.(type) {
	case *pgproto3.DataRow:
		return false, s.row(m)
	case *pgproto3.CommandComplete:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.at++
	case *pgproto3.ErrorResponse:
		return false, s.fail(pgconn.ErrorResponseToPgError(m))
	case *pgproto3.NotificationResponse:
		s.backend.wake(m)
	case *pgproto3.ReadyForQuery:
		return s.complete()
	}
	return false, nil
}

func (s *session) row(m *pgproto3.DataRow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at >= len(s.flight) || !s.flight[s.at].row(m) {
		return errProtocol
	}
	return nil
}

func (s *session) fail(err *pgconn.PgError) error {
	if err.SeverityUnlocalized == "FATAL" || err.SeverityUnlocalized == "PANIC" {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	return nil
}

// complete ends a transaction: the calls answered by it learn their answers. With
// the last one of the exchange, what has been queued meanwhile is sent.
func (s *session) complete() (idle bool, err error) {
	s.mu.Lock()
	last := s.first
	for last < len(s.flight) && !s.flight[last].ends {
		last++
	}
	if last == len(s.flight) || s.failed == nil && s.at != last+1 {
		s.mu.Unlock()
		return false, errProtocol
	}
	var room [16]*call
	answered := s.answered(room[:0], last)
	s.first, s.at, s.failed = last+1, last+1, nil
	over := s.first == len(s.flight)
	if over {
		s.finish()
	}
	switch {
	case over && len(s.queue) > 0:
		s.send()
	case over:
		idle = s.hush()
		fallthrough
	default:
		s.mu.Unlock()
	}
	for _, c := range answered {
		c.deliver()
	}
	return idle, nil
}

// finish ends an exchange.
func (s *session) finish() {
	s.exchanges++
	s.proven = s.sent
	s.flight = s.flight[:0]
	if len(s.again) > 0 {
		s.queue = append(s.again, s.queue...)
		s.again = nil
	}
}

// answered returns the calls of a transaction that have their answer. It ends with
// the statement last. The calls that were in or behind one that failed, and were
// not its only ones, are to be sent again. If all statements were run and the
// transaction failed, every call did.
func (s *session) answered(done []*call, last int) []*call {
	failedAtEnd := s.failed != nil && s.at > last
	for i := s.first; i <= last; i++ {
		st := &s.flight[i]
		switch {
		case i < s.at && !failedAtEnd:
			done = append(done, st.calls...)
		case failedAtEnd, i == s.at && !st.many:
			for _, c := range st.calls {
				c.err = s.failed
			}
			done = append(done, st.calls...)
		case i == s.at:
			for _, c := range st.calls {
				c.alone = true
			}
			fallthrough
		default:
			s.again = append(s.again, st.calls...)
		}
		clear(st.calls)
	}
	return done
}

// end takes down what is left of a session.
func (s *session) end(err error) {
	_ = s.conn.Close()
	s.mu.Lock()
	if s.dead == nil {
		s.dead = err
	}
	err = s.dead
	var left []*call
	for _, st := range s.flight[min(s.first, len(s.flight)):] {
		left = append(left, st.calls...)
	}
	left = append(append(left, s.again...), s.queue...)
	s.flight, s.again, s.queue = nil, nil, nil
	s.mu.Unlock()
	s.backend.lost(s, err)
	for _, c := range left {
		c.err = err
		c.deliver()
	}
}

// kill ends the session because of err. Nothing is asked of it any more.
func (s *session) kill(err error) {
	s.mu.Lock()
	if s.dead == nil {
		s.dead = err
	}
	s.alert()
	s.mu.Unlock()
	_ = s.conn.Close()
}

// survived reports whether err is about one statement, so that the session
// goes on.
func (s *session) survived(err error) bool {
	return codeOf(err) != "" && s.lives()
}

// wasEnded reports whether err says that the other side has ended the session, which
// had served before. All that it had is free then.
func (s *session) wasEnded(err error) bool {
	if s.lives() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return s.exchanges > 0
		}
	}
	return strings.HasPrefix(codeOf(err), "57") && s.exchanges > 0
}

func (s *session) lives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead == nil
}

// cancel asks the server to give up what the session waits for, and kills the
// session if that cannot be done.
func (s *session) cancel(ctx context.Context) {
	if err := s.pg.CancelRequest(ctx); err != nil {
		s.kill(fmt.Errorf("cancel: %w", err))
	}
}

// bye says goodbye, so that the server does not log a broken connection.
func (s *session) bye() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.front.Send(&pgproto3.Terminate{})
	_ = s.front.Flush()
}

// lease is how long the server keeps the session after it last heard of it.
func (s *session) lease() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl
}

// retune gives a session that nobody uses another lease. The server learns of it
// with what its next user sends.
func (s *session) retune(lease time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ttl == lease {
		return
	}
	s.ttl = lease
	if !s.leased {
		return
	}
	s.queue = append(s.queue, &call{op: setTTL, arg: lease.Milliseconds(), then: sequelFunc(func(c *call) {
		if c.err != nil {
			s.kill(c.err)
		}
	})})
}

// A renewal is an exchange that proves the session once more.
type renewal struct {
	done chan struct{}
	sent time.Time
	err  error
}

// renew proves that the session lives, unless that is known to be so since
// some moment after fresh. All who ask meanwhile share one exchange.
func (s *session) renew(fresh time.Time) *renewal {
	r, first := s.sharedRenewal(fresh)
	if first {
		s.start(&call{op: ping, arg: int64(s.pid), then: sequelFunc(func(c *call) { s.renewed(r, c) })})
	}
	return r
}

func (s *session) sharedRenewal(fresh time.Time) (r *renewal, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead == nil && s.proven.After(fresh):
		return &renewal{done: closed, sent: s.proven}, false
	case s.renewal != nil:
		return s.renewal, false
	}
	s.renewal = &renewal{done: make(chan struct{})}
	return s.renewal, true
}

func (s *session) renewed(r *renewal, c *call) {
	s.mu.Lock()
	s.renewal = nil
	s.mu.Unlock()
	r.sent, r.err = c.sent, c.err
	if c.err == nil && c.value != 1 {
		r.err = errMoved
		s.kill(errMoved)
	}
	close(r.done)
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
