package pg

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// maxGroup bounds what goes out at once, so that neither side's buffers fill
// up while the other one writes.
const maxGroup = 256

// A call is one op that somebody wants run.
type call struct {
	op       op
	arg      int64
	rank     int64         // the second argument
	alone    bool          // not grouped any more: a group with it has failed
	sent     time.Time     // zero: it never was
	value    int64         // the answer
	err      error         // a *pgconn.PgError, or why the session is gone
	onAnswer func(*call)   // called before done is closed
	done     chan struct{} // closed with the answer; nil if nobody waits for it

	answered bool // for who reads
}

func newCall(o op, arg int64) *call { return &call{op: o, arg: arg, done: make(chan struct{})} }

func (c *call) deliver() {
	c.answered = true
	if c.onAnswer != nil {
		c.onAnswer(c)
	}
	if c.done != nil {
		close(c.done)
	}
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
	if len(s.inFlight) > 0 {
		s.mu.Unlock()
		return false
	}
	if reads = offers && s.startReading(); !reads {
		s.ensureReader()
	}
	s.send()
	return reads
}

// do runs one op and waits for the answer until ctx is done. It may be that
// the op is run even so.
func (s *session) do(ctx context.Context, o op, arg int64) (*call, error) {
	c := newCall(o, arg)
	s.sendAndRead(ctx, c, time.Time{})
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
	s.sent, s.waits = time.Now(), false
	for i := range s.inFlight {
		st := &s.inFlight[i]
		s.encode(st)
		for _, c := range st.calls {
			c.sent = s.sent
		}
		if st.op.waits() {
			limit, s.waits = s.ttl+s.backend.opts.Slice, true
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
	if k := len(s.inFlight) - 1; k >= 0 {
		s.inFlight[k].ends = true
	}
	for _, c := range s.queue[:n] {
		switch {
		case c.alone:
			s.separate(c)
		case c.op.goesAlone():
			s.join(c).ends = true
		}
	}
	for i := range s.inFlight {
		s.inFlight[i].many = len(s.inFlight[i].calls) > 1
	}
	s.queue = slices.Delete(s.queue, 0, n)
	s.first, s.at, s.failed = 0, 0, nil
}

// join adds c to a statement of its kind, or to the end as one of its own.
func (s *session) join(c *call) *statement {
	if groups[c.op] != "" {
		for i := range s.inFlight {
			if st := &s.inFlight[i]; st.op == c.op {
				st.calls = append(st.calls, c)
				return st
			}
		}
	}
	return s.add(c)
}

// separate makes c a transaction of its own. It was part of a statement that failed, which
// may have done what c is to do. So what it may have taken is given
// back first; and if it may have unlocked, nobody is notified here.
func (s *session) separate(c *call) {
	undo := c.op.undo()
	switch {
	case undo == ops:
	case c.op == unlockExclusive || c.op == unlockShared:
		c.op = undo
	default:
		s.add(&call{op: undo, arg: c.arg, onAnswer: func(*call) {}})
	}
	s.add(c).ends = true
}

// add appends a statement, in the memory of an earlier one if there is any.
func (s *session) add(c *call) *statement {
	n := len(s.inFlight)
	if n < cap(s.inFlight) {
		s.inFlight = s.inFlight[:n+1]
	} else {
		s.inFlight = append(s.inFlight, statement{})
	}
	st := &s.inFlight[n]
	st.form, st.rows, st.ends = form{op: c.op}, 0, false
	st.calls = append(st.calls[:0], c)
	return st
}

// handleMessage handles one message.
func (s *session) handleMessage(m pgproto3.BackendMessage) (idle bool, err error) {
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
		s.backend.handleNotification(m)
	case *pgproto3.ReadyForQuery:
		return s.complete()
	}
	return false, nil
}

func (s *session) row(m *pgproto3.DataRow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at >= len(s.inFlight) || !s.inFlight[s.at].row(m) {
		return errProtocol
	}
	return nil
}

func (s *session) fail(err *pgconn.PgError) error {
	if isFatal(err) {
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
	for last < len(s.inFlight) && !s.inFlight[last].ends {
		last++
	}
	if last == len(s.inFlight) || s.failed == nil && s.at != last+1 {
		s.mu.Unlock()
		return false, errProtocol
	}
	var room [16]*call
	answered := s.answered(room[:0], last)
	s.first, s.at, s.failed = last+1, last+1, nil
	over := s.first == len(s.inFlight)
	if over {
		s.finish()
	}
	switch {
	case over && len(s.queue) > 0:
		s.send()
	case over:
		idle = s.stopReading()
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
	if !s.waits {
		s.backend.trip.Observe(time.Since(s.sent))
	}
	s.inFlight = s.inFlight[:0]
	if len(s.resend) > 0 {
		s.queue = append(s.resend, s.queue...)
		s.resend = nil
	}
}

// answered returns the calls of a transaction that have their answer. It ends with
// the statement last. The calls that were in or behind one that failed, and were
// not its only ones, are to be sent again. If all statements were run and the
// transaction failed, every call did.
func (s *session) answered(done []*call, last int) []*call {
	failedAtEnd := s.failed != nil && s.at > last
	for i := s.first; i <= last; i++ {
		st := &s.inFlight[i]
		switch {
		case i < s.at && !failedAtEnd:
			done = append(done, st.calls...)
		case failedAtEnd, i == s.at && (!st.many || st.op == wanted): // to look is not worth another try
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
			s.resend = append(s.resend, st.calls...)
		}
		clear(st.calls)
	}
	return done
}
