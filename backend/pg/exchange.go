package pg

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
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
	single   bool          // it is to be a statement of its own
	sent     time.Time     // zero: it never was
	value    int64         // the answer
	err      error         // a *pgconn.PgError, or why the session is gone
	grouped  bool          // the answer is that of a statement which had others' calls too
	onAnswer func(*call)   // called before done is closed
	done     chan struct{} // closed with the answer; nil if nobody waits for it
}

func newCall(o op, arg int64) *call { return &call{op: o, arg: arg, done: make(chan struct{})} }

func (c *call) deliver() {
	if c.onAnswer != nil {
		c.onAnswer(c)
	}
	if c.done != nil {
		close(c.done)
	}
}

// start queues calls, which go out together. They are answered even if the session
// ends.
func (s *session) start(list ...*call) {
	s.mu.Lock()
	if err := s.dead; err != nil {
		s.mu.Unlock()
		for _, c := range list {
			c.err = err
			c.deliver()
		}
		return
	}
	s.queue = append(s.queue, list...)
	if len(s.inFlight) > 0 {
		s.mu.Unlock()
		return
	}
	s.send()
}

// do runs one op and waits for the answer until ctx is done. It may be that
// the op is run even so.
func (s *session) do(ctx context.Context, o op, arg int64) (*call, error) {
	c := newCall(o, arg)
	s.start(c)
	select {
	case <-c.done:
		return c, c.err
	case <-ctx.Done():
		return nil, backend.Cause(ctx)
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
		if st.calls[0].op.waits() {
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
	s.front.SendBind(st.bind())
	s.front.SendExecute(&pgproto3.Execute{})
	s.front.SendSync(&pgproto3.Sync{})
}

// group turns the queue into an exchange. Each statement is a transaction, so that none
// fails with another. Those that wait for the disk come last.
func (s *session) group() {
	n := min(len(s.queue), maxGroup)
	for _, writes := range []bool{false, true} {
		for _, c := range s.queue[:n] {
			if c.op.writes() == writes {
				s.join(c)
			}
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
	s.at, s.failed = 0, nil
}

// join adds c to a statement of its group, or as a statement of its own.
func (s *session) join(c *call) {
	if g := c.group(); g != noGroup {
		for i := range s.inFlight {
			if st := &s.inFlight[i]; st.group == g {
				st.calls = append(st.calls, c)
				return
			}
		}
	}
	s.inFlight = append(s.inFlight, statement{group: c.group(), calls: []*call{c}})
}

// handleMessage handles one message.
func (s *session) handleMessage(m pgproto3.BackendMessage) error {
	switch m := m.(type) {
	case *pgproto3.DataRow:
		return s.row(m)
	case *pgproto3.ErrorResponse:
		return s.fail(pgconn.ErrorResponseToPgError(m))
	case *pgproto3.NotificationResponse:
		s.backend.handleNotification(m)
	case *pgproto3.ReadyForQuery:
		return s.complete()
	}
	return nil
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

// complete ends a statement: its calls learn their answers. With the last one of the
// exchange, what has been queued meanwhile is sent.
func (s *session) complete() error {
	s.mu.Lock()
	answered, ok := s.answer()
	if !ok {
		s.mu.Unlock()
		return errProtocol
	}
	over := s.at == len(s.inFlight)
	if over {
		s.finish()
	}
	if over && len(s.queue) > 0 {
		s.send()
	} else {
		s.mu.Unlock()
	}
	for _, c := range answered {
		c.deliver()
	}
	return nil
}

// answer ends a statement and returns its calls. If it has failed, even when all rows
// had come, each of them has. It reports false if the server has not said how it ended.
func (s *session) answer() (calls []*call, ok bool) {
	if s.at == len(s.inFlight) || s.failed == nil && s.inFlight[s.at].rows < s.inFlight[s.at].expects() {
		return nil, false
	}
	st := &s.inFlight[s.at]
	for _, c := range st.calls {
		c.err, c.grouped = s.failed, st.many()
	}
	s.at, s.failed = s.at+1, nil
	return st.calls, true
}

// finish ends an exchange.
func (s *session) finish() {
	s.proven = s.sent
	if !s.waits {
		s.backend.trip.Observe(time.Since(s.sent))
	}
	s.inFlight = nil
	s.setDeadline(time.Now().Add(s.ttl / 2))
}
