package memory

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// errNoReply is the cause of a failure that DropReply asked for.
var errNoReply = errors.New("the reply was lost")

// faults are what a test wants to go wrong between a client and the server.
type faults struct {
	outage outage

	mu        sync.Mutex
	failNext  error
	dropReply bool
	delay     time.Duration
	delayed   chan struct{} // closed when delay changes
}

// Cut cuts this client off: none of its calls gets an answer until Heal. What
// it holds runs out on the server meanwhile.
func (b *Backend) Cut() { b.faults.outage.begin() }

// Heal ends Cut.
func (b *Backend) Heal() { b.faults.outage.end() }

// Delay holds back what the server answers to this client from now on, for d
// each. Zero ends it, and lets through what is held back.
func (b *Backend) Delay(d time.Duration) {
	f := &b.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delayed != nil {
		close(f.delayed)
	}
	f.delay, f.delayed = max(d, 0), make(chan struct{})
}

// FailNext makes the next call fail with err before it reaches the server.
func (b *Backend) FailNext(err error) {
	b.faults.mu.Lock()
	defer b.faults.mu.Unlock()
	b.faults.failNext = err
}

// DropReply makes the next call but Renew take effect and fail all the same, as if
// its reply had been lost. Acquire clears up after itself then.
func (b *Backend) DropReply() {
	b.faults.mu.Lock()
	defer b.faults.mu.Unlock()
	b.faults.dropReply = true
}

// Freeze stops the server: no call gets an answer until Thaw. Its clock runs
// on.
func (s *Server) Freeze() { s.outage.begin() }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.outage.end() }

// Evict takes the lock from everybody who holds it, and tells them, as somebody does
// who deletes it: the next may have it before they hear of that.
func (s *Server) Evict(name string) {
	s.mu.Lock()
	var evicted []*hold
	if l := s.locks[name]; l != nil {
		evicted = l.holders()
		l.writer, l.readers = nil, nil
		s.grantNext(name, l, s.now())
	}
	s.mu.Unlock()
	for _, h := range evicted {
		h.hold.Lost(nil)
	}
}

// Wipe forgets every hold and tells nobody. Those who wait stay in the queue,
// but for those who need a server that remembers: they are turned away.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if clock := uint64(s.clock(now).UnixMicro()); s.drawn > clock { // holders were faster than it
		s.ahead += time.Duration(s.drawn-clock) * time.Microsecond
	}
	s.token, s.since = 0, 0
	for name, l := range s.locks {
		l.writer, l.readers = nil, nil
		l.endWaits(func(w *waiter) error {
			if w.ballot.Rejoin == 0 {
				return nil
			}
			return &backend.NotReadyError{In: w.ballot.Rejoin}
		})
		s.grantNext(name, l, now)
	}
}

// SetClock makes the clock from which the server takes its tokens ahead of the
// real one, or behind.
func (s *Server) SetClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
}

// send carries a request to the server, when it can be reached.
func (b *Backend) send(ctx context.Context) error {
	select {
	case <-b.closed:
		return backend.ErrClosed
	default:
	}
	b.faults.mu.Lock()
	err := b.faults.failNext
	b.faults.failNext = nil
	b.faults.mu.Unlock()
	if err != nil {
		return err
	}
	b.server.ops.Add(1)
	return b.reach(ctx)
}

// receive carries the reply back.
func (b *Backend) receive(ctx context.Context) error {
	b.faults.mu.Lock()
	drop := b.faults.dropReply
	b.faults.dropReply = false
	b.faults.mu.Unlock()
	if drop {
		return backend.Fail(backend.ErrUnavailable, errNoReply)
	}
	if err := b.faults.delayReply(ctx, b.closed); err != nil {
		return err
	}
	return b.reach(ctx)
}

// reach waits until client and server are connected.
func (b *Backend) reach(ctx context.Context) error {
	for _, o := range []*outage{&b.faults.outage, &b.server.outage} {
		ended := o.ended()
		if ended == nil {
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return backend.WaitEnded(ctx, false)
		case <-b.closed:
			return backend.ErrClosed
		}
	}
	return nil
}

// delayReply returns when an answer that has been given by now arrives.
func (f *faults) delayReply(ctx context.Context, closed <-chan struct{}) error {
	f.mu.Lock()
	delay, changed := f.delay, f.delayed
	f.mu.Unlock()
	if delay == 0 {
		return nil
	}
	arrived := make(chan struct{})
	defer time.AfterFunc(delay, func() { close(arrived) }).Stop()
	select {
	case <-changed:
		return nil
	case <-arrived:
		return nil
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	case <-closed:
		return backend.ErrClosed
	}
}

// An outage is a connection that can be down. The zero value is up.
type outage struct {
	mu   sync.Mutex
	down chan struct{} // closed when it is up again; nil: it is up
}

func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down == nil {
		o.down = make(chan struct{})
	}
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down != nil {
		close(o.down)
		o.down = nil
	}
}

// ended is closed at the end of the present outage; nil: there is none.
func (o *outage) ended() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}
