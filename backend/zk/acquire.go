package zk

import (
	"cmp"
	"context"
	"errors"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// answerGrace is how long a caller whose ctx is done waits for an answer that may be on
// its way, which says whether the lock is held, and then for its node to be deleted.
const answerGrace = 20 * time.Millisecond

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	a := newAcquisition(b, r)
	if !b.janitor.Go(func(context.Context) { a.run() }) {
		return nil, backend.ErrClosed
	}
	firstAnswer := time.NewTimer(backend.FirstAnswer)
	defer firstAnswer.Stop()
	for {
		select {
		case o := <-a.outcome:
			return o.hold, o.err
		case <-ctx.Done():
			select { // an answer may be on its way, which says whether the lock is held
			case o := <-a.outcome:
				return o.hold, o.err
			case <-a.queued:
			case <-time.After(answerGrace):
			}
			h, err := a.leave(backend.WaitEnded(ctx, isClosed(a.queued)))
			awaitClosed(a.finished, answerGrace)
			return h, backend.At(b.servers, err)
		case <-firstAnswer.C:
			if !isClosed(a.queued) {
				return a.leave(backend.At(b.servers, backend.Fail(backend.ErrUnavailable, errNoAnswer)))
			}
		}
	}
}

// An acquisition is one call of Acquire. It runs in a goroutine of its own, because no
// request of the driver takes a context. The goroutine goes on after the caller has
// left, until it has deleted what it has created on the server.
type acquisition struct {
	backend  *Backend
	request  backend.Request
	dir      string
	queued   chan struct{} // closed when the server has said that others are in the queue
	outcome  chan outcome  // to the caller, unless it has left
	left     chan struct{} // closed when the caller has left
	finished chan struct{} // closed when nothing is left on the server but a hold
}

type outcome struct {
	hold *backend.Hold
	err  error
}

func newAcquisition(b *Backend, r backend.Request) *acquisition {
	return &acquisition{
		backend:  b,
		request:  r,
		dir:      b.dirOf(r.Name),
		queued:   make(chan struct{}),
		outcome:  make(chan outcome),
		left:     make(chan struct{}),
		finished: make(chan struct{}),
	}
}

// leave ends the caller's wait with err, or with the outcome if that came first.
func (a *acquisition) leave(err error) (*backend.Hold, error) {
	select {
	case o := <-a.outcome:
		return o.hold, o.err
	default:
		close(a.left)
		return nil, err
	}
}

// setQueued notes that the server has said that others are in the queue.
func (a *acquisition) setQueued() {
	if !isClosed(a.queued) {
		close(a.queued)
		a.request.Answered()
	}
}

func (a *acquisition) run() {
	defer close(a.finished)
	h, err := a.acquire()
	select {
	case a.outcome <- outcome{h, err}:
	case <-a.left:
		if h != nil {
			h.State.(*hold).release()
		}
	}
}

// acquire tries in one session after another. It joins the queue anew if its session
// ends or somebody else deletes its node.
func (a *acquisition) acquire() (*backend.Hold, error) {
	for {
		s, err := a.backend.session(pathBound(a.dir))
		if err != nil {
			return nil, err
		}
		h, err := a.try(s)
		if h == nil {
			a.backend.unreserve(s, pathBound(a.dir))
		}
		switch {
		case errors.Is(err, errWaiterRemoved):
		case !errors.Is(err, errSessionEnded):
			return h, classify(err)
		case backend.HasKind(s.endCause()):
			return nil, s.endCause()
		}
		if isClosed(a.left) {
			return nil, errCallerLeft
		}
	}
}

// try joins the queue with one node and waits for the grant.
func (a *acquisition) try(s *session) (*backend.Hold, error) {
	if err := s.awaitReady(a.left); err != nil {
		return nil, err
	}
	n, err := a.joinQueue(s)
	if n != nil {
		defer n.withdraw()
	}
	if err != nil {
		return nil, err
	}
	err = a.awaitGrant(n)
	if err == nil {
		var h *backend.Hold
		if h, err = a.newHold(n); err == nil {
			return h, nil
		}
	}
	if !errors.Is(err, errWaiterRemoved) {
		_ = n.leaveQueue()
	}
	return nil, err
}

// joinQueue creates a node in the queue, and the lock's node first if there is none.
func (a *acquisition) joinQueue(s *session) (n *node, err error) {
	created := false
	defer func() {
		if created && n == nil { // the server never removes a container that has always been empty
			_ = s.retry(func() error { return s.client.Delete(a.dir, -1) })
		}
	}()
	for !isClosed(a.left) {
		if err = s.checkAccess(a.dir); err == nil {
			n, err = a.enqueue(s)
		}
		if !errors.Is(err, gozk.ErrNoNode) {
			return n, err
		}
		if created, err = s.ensureDir(a.dir); err != nil {
			return nil, err
		}
	}
	return nil, errCallerLeft
}

// enqueue creates a node and finds out which nodes precede it. A node that is alone
// needs no second request for that.
func (a *acquisition) enqueue(s *session) (*node, error) {
	join := a.join
	if !a.request.Wait {
		join = a.joinIfFree
	}
	n, err := join(s)
	switch {
	case err != nil:
		return nil, err
	case n.isAlone:
		return n, nil
	}
	if n.mode == backend.Exclusive {
		a.setQueued()
	}
	find := n.findFirstPredecessors
	if !a.request.Wait { // that an announcement is still there does not say that its node is
		find = n.findPredecessors
	}
	err = find()
	if err != nil && !errors.Is(err, errWaiterRemoved) {
		_ = n.leaveQueue()
	}
	return n, err
}

// join creates a node whoever is in the queue: by the fast path if the session has one
// to the lock, or else in a transaction.
func (a *acquisition) join(s *session) (*node, error) {
	if a.request.Mode == backend.Exclusive {
		if f, ok := s.fastPathTo(a.dir); ok {
			if n, err := a.joinFast(s, f); n != nil || err != nil {
				return n, err
			}
		}
	}
	return s.createNode(a.nodeSpec())
}

func (a *acquisition) nodeSpec() nodeSpec {
	return nodeSpec{dir: a.dir, mode: a.request.Mode, label: a.request.Label}
}

// joinIfFree creates a node if the lock is free: a request that does not wait shall
// leave nothing behind and delay nobody.
func (a *acquisition) joinIfFree(s *session) (*node, error) {
	version, err := s.checkFree(a.dir, a.request.Mode)
	if !a.backend.opts.Standalone && errors.Is(err, backend.ErrHeld) { // the member may be behind the leader
		if err = s.retry(func() error { _, err := s.client.Sync(a.dir); return err }); err == nil {
			version, err = s.checkFree(a.dir, a.request.Mode)
		}
	}
	var n *node
	if err == nil {
		spec := a.nodeSpec()
		if spec.mode == backend.Exclusive {
			spec.check = &gozk.CheckVersionRequest{Path: a.dir, Version: version}
		}
		n, err = s.createNode(spec)
	}
	if errors.Is(err, gozk.ErrBadVersion) {
		err = backend.ErrHeld // somebody has joined the queue since the check
	}
	if errors.Is(err, backend.ErrHeld) {
		a.setQueued()
	}
	return n, err
}

// checkFree returns the version of the lock's node if no node in the queue conflicts
// with a request of mode m, or else ErrHeld.
func (s *session) checkFree(dir string, m backend.Mode) (version int32, err error) {
	if held, err := s.blockerExists(dir, m); held || err != nil {
		return 0, cmp.Or(err, backend.ErrHeld)
	}
	q, stat, err := s.listQueue(dir)
	if err != nil {
		return 0, err
	}
	c := q.conflicting(m)
	s.setBlocker(dir, m, c)
	if c.count > 0 {
		return 0, backend.ErrHeld
	}
	return stat.Version, nil
}

// A blockerKey is a lock and the mode of requests for it that do not wait. If the queue
// is longer than longQueue, the session remembers the last node that conflicts with
// them, the blocker. As long as that exists, a request need not list the queue.
type blockerKey struct {
	dir  string
	mode backend.Mode
}

const (
	longQueue   = 64
	maxBlockers = 64 // that a session remembers
)

func (s *session) setBlocker(dir string, m backend.Mode, c predecessors) {
	if c.count <= longQueue {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.blockers) >= maxBlockers {
		clear(s.blockers)
	}
	s.blockers[blockerKey{dir, m}] = dir + "/" + c.last.name
}

// blockerExists reports whether a blocker is known that still exists.
func (s *session) blockerExists(dir string, m backend.Mode) (bool, error) {
	s.mu.Lock()
	path := s.blockers[blockerKey{dir, m}]
	s.mu.Unlock()
	if path == "" {
		return false, nil
	}
	found, err := s.exists(path)
	if err == nil && !found {
		s.mu.Lock()
		delete(s.blockers, blockerKey{dir, m})
		s.mu.Unlock()
	}
	return found, err
}
