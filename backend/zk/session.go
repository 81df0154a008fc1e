package zk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// A session is one session with the server, on a client of the driver of its own. When
// the session ends that client is closed. Otherwise the driver would begin another
// session, and carry requests out in it that were meant for this one.
type session struct {
	backend    *Backend
	ctx        context.Context         // ends with the session
	stop       context.CancelCauseFunc // with why the session has ended; called with mu held
	ready      chan struct{}           // closed when client can be used
	client     *gozk.Conn
	containers sync.WaitGroup // that are being created
	roundTrip  backend.RoundTrip
	looking    sync.Mutex    // held while a look is under way
	watching   chan struct{} // slots for holds that begin to be watched
	reserved   int           // bytes, by pathBound; guarded by backend.mu

	mu             sync.Mutex
	id             int64
	timeout        time.Duration // granted by the server
	opened         chan struct{} // closed when the server has opened the session
	connected      bool
	disconnectedAt time.Time   // zero: never
	connection     *connection // the latest
	timeouts       int         // connections in a row that have timed out
	lease          lease
	renewal        *renewal // under way; nil: none
	fastPath       fastPath
	watches        map[string]*watch     // by path
	holds          map[string]*hold      // by path
	writers        map[string]*hold      // the exclusive holds, by lock's node
	blockers       map[blockerKey]string // paths
	looks          map[string]*look      // that are not sent, by lock's node
	checkedACLs    map[string]bool       // nodes that strangers may not change
}

func newSession(b *Backend) *session {
	s := &session{
		backend:     b,
		ready:       make(chan struct{}),
		opened:      make(chan struct{}),
		watching:    make(chan struct{}, maxWatching),
		watches:     make(map[string]*watch),
		holds:       make(map[string]*hold),
		writers:     make(map[string]*hold),
		blockers:    make(map[blockerKey]string),
		looks:       make(map[string]*look),
		checkedACLs: make(map[string]bool),
	}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// run returns when the session has ended and the driver is closed. Close does not wait
// for it any longer than its ctx allows.
func (s *session) run(context.Context) {
	user, password, err := s.credentials()
	if err != nil {
		s.end(err)
		return
	}
	client, events, err := gozk.Connect(s.backend.servers, s.backend.opts.SessionTimeout,
		gozk.WithDialer(s.dial),
		gozk.WithHostProvider(&hosts{ctx: s.ctx}),
		gozk.WithEventCallback(s.handleEvent),
		gozk.WithLogger(logger{s.backend.opts.Logger}),
		gozk.WithLogInfo(false),
		gozk.WithMaxConnBufferSize(sendBuffer),
		gozk.WithMaxBufferSize(receiveBuffer),
	)
	if err != nil {
		s.end(backend.Fail(backend.ErrInvalidConfig, err))
		return
	}
	s.client = client
	authenticated := make(chan struct{})
	go func() {
		defer close(authenticated)
		s.authenticate(user, password)
	}()
	<-s.ctx.Done()
	s.closeClient()
	<-authenticated
	for range events { // until the driver has ended
	}
}

// sendBuffer holds the driver's greatest request, a list of watches.
const sendBuffer = 256 << 10

// receiveBuffer holds the greatest answer, a queue of 300,000 requests. No message that
// says it is longer is read.
const receiveBuffer = 16 << 20

func (s *session) credentials() (user, password string, err error) {
	if s.backend.opts.Credentials == nil {
		return "", "", nil
	}
	user, password, err = s.backend.opts.Credentials(s.ctx)
	if err != nil {
		return "", "", backend.Fail(backend.ErrAuth, err)
	}
	return user, password, nil
}

// authenticate makes the session ready once the server has opened it.
func (s *session) authenticate(user, password string) {
	select {
	case <-s.opened:
	case <-s.ctx.Done():
		return
	}
	if user != "" {
		err := s.retry(func() error { return s.client.AddAuth("digest", []byte(user+":"+password)) })
		if err != nil {
			s.end(classify(err))
			return
		}
	}
	close(s.ready)
}

// awaitReady waits until the session can be used. It returns errCallerLeft when left is
// closed.
func (s *session) awaitReady(left <-chan struct{}) error {
	select {
	case <-s.ready:
		return nil
	case <-s.ctx.Done():
		return errSessionEnded
	case <-left:
		return errCallerLeft
	}
}

// handleEvent is called by the driver, from the goroutine that reads from the connection.
func (s *session) handleEvent(e gozk.Event) {
	switch {
	case e.Type == gozk.EventNodeDeleted:
		s.fire(e.Path, deleted)
	case e.Type == gozk.EventNodeDataChanged:
		s.fire(e.Path, written)
	case e.Type == gozk.EventNodeCreated:
		s.fireSignal(e.Path)
	case e.Type == gozk.EventNodeChildrenChanged:
		s.handleChildren(e.Path)
	case e.Type != gozk.EventSession:
	case e.State == gozk.StateHasSession:
		s.setConnected()
	case e.State == gozk.StateDisconnected:
		s.setDisconnected()
	case e.State == gozk.StateExpired:
		s.end(errExpired)
	}
}

func (s *session) setConnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected = true
	if !isClosed(s.opened) {
		close(s.opened)
	}
}

func (s *session) setDisconnected() {
	s.mu.Lock()
	s.breakFastPath("")
	if s.connected {
		s.connected, s.disconnectedAt = false, time.Now()
	}
	var lost []*hold
	if s.backend.opts.Strict {
		lost = s.removeHolds()
	}
	s.mu.Unlock()
	s.backend.reportLoss(lost, errDisconnected)
}

// end ends the session for that cause, unless it has ended.
func (s *session) end(cause error) {
	s.mu.Lock()
	s.stop(cause)
	lost := s.removeHolds()
	s.mu.Unlock()
	if !errors.Is(cause, backend.ErrClosed) {
		s.backend.reportLoss(lost, cause)
	}
}

// removeHolds is called with s.mu held.
func (s *session) removeHolds() []*hold {
	all := slices.Collect(maps.Values(s.holds))
	clear(s.holds)
	clear(s.writers)
	return all
}

// endCause returns why the session has ended, or nil.
func (s *session) endCause() error { return context.Cause(s.ctx) }

func (s *session) sessionID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// retry sends a request until its outcome is clear. It returns errSessionEnded if the
// session ends first.
func (s *session) retry(request func() error) error {
	var pause backend.Backoff
	for {
		err := request()
		switch {
		case !isUnclear(err):
			return err
		case !backend.Sleep(s.ctx, pause.Next()):
			return errSessionEnded
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// awaitClosed waits until ch is closed, for at most d, and reports whether it is.
func awaitClosed(ch <-chan struct{}, d time.Duration) bool {
	select {
	case <-ch:
		return true
	case <-time.After(d):
		return false
	}
}
