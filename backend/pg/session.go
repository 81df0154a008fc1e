package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
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
	epoch   uint64 // the WAL timeline, where it stands in a token
	listens bool
	leased  bool // the server knows of leases
	ranges  bool // some numbers must not be used, see sequenceName

	// Guarded by backend.mu.
	users  int // grants and requests
	grants map[*grant]struct{}
	parker bool // taken out of the pool to wait

	writing sync.Mutex    // taken after mu; held while the buffer is sent
	rouse   chan struct{} // receives when the reader is to read

	mu        sync.Mutex
	reading   bool // somebody reads
	reserved  bool // and it is the reader alone who does
	asleep    bool // the reader is, until it is roused; only it changes that
	ttl       time.Duration
	queue     []*call
	flight    []statement // sent and unanswered
	at        int         // which of them is being answered
	parsing   []form      // to be confirmed by the server
	prepared  map[form]bool
	bind      pgproto3.Bind
	buf       []byte
	sent      time.Time // of what is in flight
	proven    time.Time // when what was last answered had been sent
	deadline  time.Time // until when to wait for the server
	armed     time.Time // when the connection ends a read: no later than that
	exchanges uint64    // that have ended
	failed    error     // of the statement being answered
	renewal   *renewal  // under way
	dead      error
}

// start queues c. It is answered even if the session ends.
func (s *session) start(c *call) { s.submit(c, false) }

// submit queues c. It reports whether the caller, who offers it, is now the one
// who reads.
func (s *session) submit(c *call, offers bool) (reads bool) {
	s.mu.Lock()
	if s.dead != nil {
		c.err = s.dead
		s.mu.Unlock()
		c.deliver()
		return false
	}
	s.queue = append(s.queue, c)
	if len(s.flight) > 0 {
		s.mu.Unlock()
		return false
	}
	reads = offers && !s.reading && !s.reserved
	if reads {
		s.reading = true
	} else {
		s.alert()
	}
	s.send()
	return reads
}

// do runs one op and waits for the answer until ctx is done. It may be that
// the op is run even so.
func (s *session) do(ctx context.Context, o op, arg int64) (*call, error) {
	c := newCall(o, arg)
	s.drive(ctx, c)
	select {
	case <-c.done:
		return c, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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
		if st.op == lockExclusive || st.op == lockShared {
			limit = s.ttl + s.backend.opts.Slice
		}
	}
	s.front.SendSync(&pgproto3.Sync{})
	s.setDeadline(s.sent.Add(limit))
	s.mu.Unlock()
	if s.front.Flush() != nil {
		_ = s.conn.Close() // the reader finds out
	}
}

// group turns the queue into statements, of which those for many keys take the
// calls of their kind together. One exchange is one transaction: what the failure
// of another statement must not undo unnoticed goes alone.
func (s *session) group() {
	n := min(len(s.queue), maxGroup)
	if i := slices.IndexFunc(s.queue[:n], func(c *call) bool { return c.op.goesAlone() }); i >= 0 {
		n = max(i, 1)
	}
	for _, c := range s.queue[:n] {
		s.place(c)
	}
	s.queue = slices.Delete(s.queue, 0, n)
	for i := range s.flight {
		s.flight[i].many = len(s.flight[i].calls) > 1
	}
	s.at, s.failed = 0, nil
}

// place adds c to a statement of its kind, or to the end as one of its own.
func (s *session) place(c *call) {
	if groups[c.op] != "" && !c.alone {
		for i := range s.flight {
			if st := &s.flight[i]; st.op == c.op && !st.calls[0].alone {
				st.calls = append(st.calls, c)
				return
			}
		}
	}
	if undo := c.op.undo(); c.alone && undo != ops {
		s.add(&call{op: undo, arg: c.arg, then: sequelFunc(func(*call) {})})
	}
	s.add(c)
}

// add appends a statement, in the memory of an earlier one if there is any.
func (s *session) add(c *call) {
	n := len(s.flight)
	if n < cap(s.flight) {
		s.flight = s.flight[:n+1]
	} else {
		s.flight = append(s.flight, statement{})
	}
	st := &s.flight[n]
	st.form, st.rows = form{op: c.op}, 0
	st.calls = append(st.calls[:0], c)
}

func (s *session) encode(st *statement) {
	name := st.name()
	if !s.prepared[st.form] && !slices.Contains(s.parsing, st.form) {
		s.parsing = append(s.parsing, st.form)
		s.front.SendParse(&pgproto3.Parse{
			Name:          name,
			Query:         st.sql(&s.backend.sequences),
			ParameterOIDs: []uint32{st.argument()},
		})
	}
	s.buf = st.encode(s.buf[:0])
	s.bind.PreparedStatement = name
	s.bind.Parameters[0] = s.buf
	s.front.SendBind(&s.bind)
	s.front.SendExecute(&pgproto3.Execute{})
}

// setDeadline says until when to wait for the server. The connection is told
// of a later one only when the one that it knows has passed.
func (s *session) setDeadline(t time.Time) {
	s.deadline = t
	if s.armed.IsZero() || s.armed.After(t) {
		s.arm(t)
	}
}

func (s *session) arm(t time.Time) {
	s.armed = t
	_ = s.conn.SetReadDeadline(t) // fails only on a closed connection
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
	case s.listens:
		s.renew(now) // of those that are used, nobody else renews this one
	}
	return nil
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
	case *pgproto3.ParseComplete:
		s.parsed()
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

func (s *session) parsed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parsing) > 0 {
		s.prepared[s.parsing[0]] = true
		s.parsing = s.parsing[1:]
	}
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

// complete ends an exchange: the calls answered by it learn their answers, and
// what has been queued meanwhile is sent.
func (s *session) complete() (idle bool, err error) {
	s.mu.Lock()
	if len(s.flight) == 0 || s.failed == nil && s.at != len(s.flight) {
		s.mu.Unlock()
		return false, errProtocol
	}
	s.exchanges++
	s.proven = s.sent
	var room [16]*call
	answered := s.answered(room[:0])
	s.flight = s.flight[:0]
	s.parsing = s.parsing[:0]
	if len(s.queue) > 0 {
		s.send()
	} else {
		idle = s.hush()
		s.mu.Unlock()
	}
	for _, c := range answered {
		c.deliver()
	}
	return idle, nil
}

// hush reports whether nobody has to read now that nothing is under way. It is
// called with s.mu held.
func (s *session) hush() bool {
	if s.reserved || s.asleep || s.dead != nil {
		s.setDeadline(time.Now().Add(s.ttl / 2))
		return false
	}
	s.reading = false
	return true
}

// answered returns the calls that have their answer. The others were in or
// behind a statement that failed: they are queued again.
func (s *session) answered(done []*call) []*call {
	var again []*call
	for i := range s.flight {
		st := &s.flight[i]
		switch {
		case i < s.at:
			done = append(done, st.calls...)
		case i == s.at && !st.many:
			st.calls[0].err = s.failed
			done = append(done, st.calls...)
		case i == s.at:
			for _, c := range st.calls {
				c.alone = true
			}
			fallthrough
		default:
			again = append(again, st.calls...)
		}
		clear(st.calls)
	}
	if len(again) > 0 {
		s.queue = append(again, s.queue...)
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
	for i := range s.flight {
		left = append(left, s.flight[i].calls...)
	}
	left = append(left, s.queue...)
	s.flight, s.queue = nil, nil
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

// retune gives a session that nobody uses another lease.
func (s *session) retune(ttl time.Duration) {
	s.mu.Lock()
	change := s.ttl != ttl && s.leased
	s.ttl = ttl
	s.mu.Unlock()
	if change {
		s.start(&call{op: setTTL, arg: ttl.Milliseconds(), then: sequelFunc(func(c *call) {
			if c.err != nil {
				s.kill(c.err)
			}
		})})
	}
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
