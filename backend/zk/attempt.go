package zk

import (
	"context"
	"errors"
	"sync"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// An attempt is one Acquire. It runs in a goroutine of its own, which goes on
// when the caller leaves, until nothing of it is left on the server.
type attempt struct {
	b       *Backend
	request backend.Request
	dir     string
	queued  chan struct{} // closed when the server has said that others are there
	left    chan struct{} // closed when the caller has left
	done    chan struct{} // closed when hold and err are set
	ended   chan struct{} // closed when nothing is left of it but its hold

	mu   sync.Mutex
	hold *backend.Hold
	err  error
}

func newAttempt(b *Backend, r backend.Request) *attempt {
	return &attempt{
		b:       b,
		request: r,
		dir:     b.opts.Root + "/" + backend.EncodeName(r.Name),
		queued:  make(chan struct{}),
		left:    make(chan struct{}),
		done:    make(chan struct{}),
		ended:   make(chan struct{}),
	}
}

// start runs a in a goroutine of its own. It reports false if the client is
// closed.
func (a *attempt) start() bool {
	return a.b.janitor.Go(func(context.Context) { a.run() })
}

// leave ends the caller's interest with err, unless the outcome came first.
func (a *attempt) leave(err error) (*backend.Hold, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.done:
		return a.hold, a.err
	default:
		close(a.left)
		return nil, err
	}
}

// settle hands the outcome over. It reports false if the caller has left.
func (a *attempt) settle(h *backend.Hold, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hasLeft() {
		return false
	}
	a.hold, a.err = h, err
	close(a.done)
	return true
}

func (a *attempt) hasLeft() bool {
	select {
	case <-a.left:
		return true
	default:
		return false
	}
}

// inQueue notes that the server has answered that others are there too.
func (a *attempt) inQueue() {
	if !a.isQueued(0) {
		close(a.queued)
		a.request.Answered()
	}
}

// isQueued reports whether inQueue has been called or is within d.
func (a *attempt) isQueued(d time.Duration) bool {
	select {
	case <-a.queued:
		return true
	default:
	}
	if d == 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a.queued:
		return true
	case <-a.done:
	case <-timer.C:
	}
	return false
}

// awaitEnd waits for what a leaves behind to be gone, but no longer than d.
func (a *attempt) awaitEnd(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a.ended:
	case <-timer.C:
	}
}

func (a *attempt) run() {
	defer close(a.ended)
	h, err := a.acquire()
	if !a.settle(h, err) && h != nil {
		h.State.(*held).release()
	}
}

// acquire takes the lock, with as many sessions as that lasts.
func (a *attempt) acquire() (*backend.Hold, error) {
	for {
		s, err := a.b.session()
		if err != nil {
			return nil, err
		}
		h, err := a.acquireIn(s)
		switch {
		case errors.Is(err, errVanished):
		case !errors.Is(err, errOver):
			return h, kindOf(err)
		case classified(s.whyOver()):
			return nil, s.whyOver()
		}
		if a.hasLeft() {
			return nil, errLeft
		}
	}
}

func (a *attempt) acquireIn(s *session) (*backend.Hold, error) {
	if err := s.await(a.left); err != nil {
		return nil, err
	}
	n, err := a.enter(s)
	if err != nil {
		return nil, err
	}
	err = a.wait(n)
	if err == nil {
		var h *backend.Hold
		if h, err = a.grant(n); err == nil {
			return h, nil
		}
	}
	if !errors.Is(err, errVanished) {
		_ = n.leave()
	}
	return nil, err
}

// enter queues a node, and makes that of the lock first if there is none.
func (a *attempt) enter(s *session) (n *node, err error) {
	made := false
	defer func() {
		if made && n == nil { // the server does not remove what has always been empty
			_ = s.persist(func() error { return s.conn.Delete(a.dir, -1) })
		}
	}()
	for !a.hasLeft() {
		if err = s.vouch(a.dir); err == nil {
			n, err = a.queue(s)
		}
		if !errors.Is(err, gozk.ErrNoNode) {
			return n, err
		}
		if made, err = s.ensure(a.dir); err != nil {
			return nil, err
		}
	}
	return nil, errLeft
}

func (a *attempt) draft() draft {
	return draft{dir: a.dir, mode: a.request.Mode, label: a.request.Label}
}

// queue makes a node and then sees what is ahead. Who is alone needs no second
// request for that.
func (a *attempt) queue(s *session) (*node, error) {
	join := a.join
	if !a.request.Wait {
		join = a.joinIfFree
	}
	n, err := join(s)
	switch {
	case err != nil:
		return nil, err
	case n.alone:
		return n, nil
	}
	if n.mode == backend.Exclusive {
		a.inQueue()
	}
	return n, a.lookOrRemove(n)
}

// join makes a node whatever is there. If there is a streak for it to continue that
// is a plain one, which does if it is alone.
func (a *attempt) join(s *session) (*node, error) {
	d := a.draft()
	if k, ok := s.streakOn(a.dir); ok && d.mode == backend.Exclusive {
		d.plain, d.token = true, k.token+1
		n, err := s.create(d)
		if err != nil {
			return nil, err
		}
		if s.continues(k, n) {
			return n, nil
		}
		r := removal{session: s, path: n.path()} // nothing tells others of it, nor when it was made
		if err := s.persist(r.try); err != nil && !errors.Is(err, gozk.ErrNoNode) {
			return nil, err
		}
		d.plain, d.token = false, 0
	}
	return s.create(d)
}

// joinIfFree makes a node if nothing is in its way: a request that does not wait
// leaves nothing behind, and holds nobody up.
func (a *attempt) joinIfFree(s *session) (*node, error) {
	version, err := s.isFree(a.dir, a.request.Mode)
	if !a.b.opts.Standalone && errors.Is(err, backend.ErrHeld) { // the member may be behind
		if err = s.persist(func() error { _, err := s.conn.Sync(a.dir); return err }); err == nil {
			version, err = s.isFree(a.dir, a.request.Mode)
		}
	}
	var n *node
	if err == nil {
		d := a.draft()
		if d.mode == backend.Exclusive {
			d.guard = &gozk.CheckVersionRequest{Path: a.dir, Version: version}
		}
		n, err = s.create(d)
	}
	if errors.Is(err, gozk.ErrBadVersion) {
		err = backend.ErrHeld // since the look somebody has queued, and nobody queues for a lock that stays free
	}
	if errors.Is(err, backend.ErrHeld) {
		a.inQueue()
	}
	return n, err
}

// lookOrRemove sees what is ahead of a node, or gives it up.
func (a *attempt) lookOrRemove(n *node) error {
	err := n.look()
	if err != nil && !errors.Is(err, errVanished) {
		_ = n.leave()
	}
	return err
}

// recheckAfter is after what time a waiting request looks whether it is still
// waiting for the right node. Nothing known makes that necessary.
const recheckAfter = 2 * time.Minute

// wait returns when nothing bars n any more.
func (a *attempt) wait(n *node) error {
	for n.barrier.count > 0 {
		a.inQueue()
		if !a.request.Wait {
			return backend.ErrHeld
		}
		if !a.hasLeft() {
			a.request.Queued()
		}
		w, err := n.session.watchBarrier(n.dir, n.barrier)
		if err != nil {
			return err
		}
		if err := a.park(n, w); err != nil {
			return err
		}
		if w.opens(n.barrier) {
			return nil
		}
		if err := n.look(); err != nil {
			return err
		}
	}
	return nil
}

// park waits until w has fired, and looks now and then whether it should have.
func (a *attempt) park(n *node, w *watch) error {
	net := time.NewTimer(backend.Jitter(recheckAfter))
	defer net.Stop()
	for {
		select {
		case <-w.fired:
			return nil
		case <-a.left:
			return errLeft
		case <-n.session.over:
			return errOver
		case <-net.C:
			if err := n.recheck(); err != nil {
				return err
			}
			net.Reset(backend.Jitter(recheckAfter))
		}
	}
}
