package zk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// A session is one session with the server, on a driver's connection of its
// own. When the session is over so is the connection: the driver would begin
// another session on it and run there what was meant for this one.
type session struct {
	b     *Backend
	ctx   context.Context // ends with the session
	stop  context.CancelFunc
	ready chan struct{} // closed when conn can be used
	over  chan struct{} // closed when the session has ended
	conn  *gozk.Conn
	trip  backend.RoundTrip

	mu        sync.Mutex
	cause     error // why it is over; nil: it is not
	id        int64
	timeout   time.Duration
	joined    chan struct{} // closed when the server has opened the session
	connected bool
	since     time.Time // when it was connected last; zero: never
	link      *link     // the latest
	proof     proof
	beat      *beat             // under way; nil: none
	watches   map[string]*watch // by path
	holds     map[string]*held  // by path
	bare      []*held           // to be watched
	armers    int               // goroutines that work at bare
	streak    streak
	silences  int              // how many connections in a row were broken for want of an answer
	witnesses map[crowd]string // the paths of nodes that were last in long queues
	vouched   map[string]bool  // nodes that strangers may not change
	writers   map[string]*held // the exclusive holds, by lock's node
}

func newSession(b *Backend) *session {
	s := &session{
		b:       b,
		ready:   make(chan struct{}),
		over:    make(chan struct{}),
		joined:  make(chan struct{}),
		watches: make(map[string]*watch),
		holds:   make(map[string]*held),

		witnesses: make(map[crowd]string),
		vouched:   make(map[string]bool),
		writers:   make(map[string]*held),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// run lives as long as the session and its connection. Close does not wait for it any
// longer than its context allows.
func (s *session) run(context.Context) {
	user, password, err := s.credentials()
	if err != nil {
		s.end(err)
		return
	}
	conn, events, err := gozk.Connect(s.b.servers, s.b.opts.SessionTimeout,
		gozk.WithDialer(s.dial),
		gozk.WithHostProvider(&hosts{over: s.over}),
		gozk.WithEventCallback(s.event),
		gozk.WithLogger(logger{s.b.opts.Logger}),
		gozk.WithLogInfo(false),
		gozk.WithMaxConnBufferSize(sendBuffer),
		gozk.WithMaxBufferSize(receiveBuffer),
	)
	if err != nil {
		s.end(backend.Fail(backend.ErrInvalidConfig, err))
		return
	}
	s.conn = conn
	introduced := make(chan struct{})
	go func() {
		defer close(introduced)
		s.introduce(user, password)
	}()
	<-s.over
	s.close()
	<-introduced
	for range events { // until the driver has ended
	}
}

// sendBuffer holds the driver's greatest request, a list of watches.
const sendBuffer = 256 << 10

// receiveBuffer holds the greatest answer, a list of 300,000 who wait for a lock. A
// server that says more than that is not believed.
const receiveBuffer = 16 << 20

func (s *session) credentials() (user, password string, err error) {
	if s.b.opts.Credentials == nil {
		return "", "", nil
	}
	user, password, err = s.b.opts.Credentials(s.ctx)
	if err != nil {
		return "", "", backend.Fail(backend.ErrAuth, err)
	}
	return user, password, nil
}

// introduce makes the session ready once it is open.
func (s *session) introduce(user, password string) {
	select {
	case <-s.joined:
	case <-s.over:
		return
	}
	if user != "" {
		err := s.persist(func() error { return s.conn.AddAuth("digest", []byte(user+":"+password)) })
		if err != nil {
			s.end(kindOf(err))
			return
		}
	}
	close(s.ready)
}

// await waits until the session can be used. It returns errOver if it cannot
// any more, and errLeft when left is closed.
func (s *session) await(left <-chan struct{}) error {
	select {
	case <-s.ready:
		return nil
	case <-s.over:
		return errOver
	case <-left:
		return errLeft
	}
}

// event hears what the driver has to tell. It is called from the goroutine
// that reads from the connection.
func (s *session) event(e gozk.Event) {
	switch {
	case e.Type == gozk.EventNodeDeleted:
		s.fire(e.Path, gone)
	case e.Type == gozk.EventNodeDataChanged:
		s.fire(e.Path, written)
	case e.Type == gozk.EventNodeCreated:
		s.fireMark(e.Path)
	case e.Type == gozk.EventNodeChildrenChanged:
		s.stir(e.Path)
	case e.Type != gozk.EventSession:
	case e.State == gozk.StateHasSession:
		s.attached()
	case e.State == gozk.StateDisconnected:
		s.detached()
	case e.State == gozk.StateExpired:
		s.end(errExpired)
	}
}

func (s *session) attached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected = true
	select {
	case <-s.joined:
	default:
		close(s.joined)
	}
}

func (s *session) detached() {
	s.mu.Lock()
	s.breakStreak("")
	if s.connected {
		s.connected, s.since = false, time.Now()
	}
	var lost []*held
	if s.b.opts.Strict {
		lost = s.takeHolds()
	}
	s.mu.Unlock()
	s.b.lose(lost, errDisconnected)
}

// end declares the session over. Only the first cause counts.
func (s *session) end(cause error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause = cause
	lost := s.takeHolds()
	close(s.over)
	s.mu.Unlock()
	s.stop()
	if !errors.Is(cause, backend.ErrClosed) {
		s.b.lose(lost, cause)
	}
}

// takeHolds empties the list of holds. It is called with s.mu held.
func (s *session) takeHolds() []*held {
	var all []*held
	for _, h := range s.holds {
		all = append(all, h)
	}
	clear(s.holds)
	clear(s.writers)
	return all
}

func (s *session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// whyOver is the cause of a session that is over.
func (s *session) whyOver() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// persist repeats a request that may be repeated until its outcome is clear.
// It returns errOver if the session ends first.
func (s *session) persist(request func() error) error {
	pause := backend.Backoff{}
	for {
		err := request()
		switch {
		case s.isOver() && unclear(err):
			return errOver
		case !unclear(err):
			return err
		case !backend.Sleep(s.ctx, pause.Next()):
			return errOver
		}
	}
}

// logger takes what the driver logs.
type logger struct{ *slog.Logger }

func (l logger) Printf(format string, args ...any) {
	l.Debug("dlock: zookeeper: " + fmt.Sprintf(format, args...))
}
