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
	asked   sent          // by the caller itself; no node: nothing
	queued  chan struct{} // closed when the server has said that others are there
	left    chan struct{} // closed when the caller has left
	done    chan struct{} // closed when hold and err are set

	mu   sync.Mutex
	hold *backend.Hold
	err  error
}

func newAttempt(b *Backend, r backend.Request) *attempt {
	return &attempt{
		b:       b,
		request: r,
		dir:     b.opts.Root + "/" + backend.EncodeName(r.Name),
	}
}

// grab takes a lock that is free in the caller's goroutine, which spares the
// switches to another one and back. It asks only once, and waits for nothing but
// the answer. If that does not grant the lock, run goes on from there.
func (a *attempt) grab(patience time.Duration) *backend.Hold {
	if !a.request.Wait || a.request.Mode != backend.Exclusive {
		return nil
	}
	s := a.b.inUse()
	if s == nil || !s.answersWithin(patience) {
		return nil
	}
	a.asked = a.ask(s)
	if n := a.asked.node; a.asked.err == nil && n.alone {
		if p, fresh, _ := s.known(s.leaseTime() / 3); fresh {
			return a.claim(n, p)
		}
	}
	return nil
}

// ask asks once for a node, a plain one if there is a streak for it to continue.
func (a *attempt) ask(s *session) sent {
	d := a.draft()
	k, plain := s.streakOn(a.dir)
	plain = plain && d.mode == backend.Exclusive // readers of one phase date it by the lock's node
	d.mark = !plain
	r := s.send(d)
	if n := r.node; plain && r.err == nil && s.continues(k, n) {
		n.alone, n.token = true, k.token+1
	}
	return r
}

// open makes a ready to be left, and to tell of its outcome.
func (a *attempt) open() {
	a.queued, a.left, a.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// start runs a in a goroutine of its own. It reports false if the client is
// closed.
func (a *attempt) start() bool {
	a.open()
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

func (a *attempt) run() {
	h, err := a.acquire()
	a.abandon()
	if !a.settle(h, err) && h != nil {
		h.State.(*held).release()
	}
}

// abandon removes a node that the caller asked for and nobody came to look at.
func (a *attempt) abandon() {
	if n, err := a.asked.confirm(); n != nil && err == nil {
		_ = n.session.remove(n.path())
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
		_ = s.remove(n.path())
	}
	return nil, err
}

// eager is how often a request that looks before it queues is overtaken before
// it does without.
const eager = 10

// enter queues a node.
func (a *attempt) enter(s *session) (*node, error) {
	overtaken := 0
	for {
		if a.hasLeft() {
			return nil, errLeft
		}
		var n *node
		var err error
		switch r := a.request; {
		case r.Wait && (r.Mode == backend.Exclusive || overtaken >= eager):
			n, err = a.queue(s)
		case overtaken >= eager:
			return nil, backend.ErrHeld
		default:
			n, err = a.lookAndQueue(s)
		}
		switch {
		case errors.Is(err, gozk.ErrNoNode):
			if err := s.ensure(a.dir); err != nil {
				return nil, err
			}
		case !errors.Is(err, gozk.ErrBadVersion):
			return n, err
		}
		overtaken++
	}
}

func (a *attempt) draft() draft {
	return draft{dir: a.dir, mode: a.request.Mode, label: a.request.Label, mark: true}
}

// queue makes a node and then sees what is ahead. Who is alone needs no second
// request for that.
func (a *attempt) queue(s *session) (*node, error) {
	if a.asked.node == nil || a.asked.node.session != s { // a node goes with its session
		a.asked = a.ask(s)
	}
	if n := a.asked.node; n.plain && !n.alone { // who looked before it was made would not wait for it
		a.abandon()
		a.asked = s.send(a.draft())
	}
	n, err := a.asked.confirm()
	a.asked = sent{}
	switch {
	case err != nil:
		return nil, err
	case n.alone:
		return n, nil
	}
	a.inQueue()
	return n, a.lookOrRemove(n)
}

// lookAndQueue sees what is ahead and then makes a node, on condition that
// nobody came between whom it would have to know of. That is how a reader
// learns in whose phase it is, and a request that does not wait leaves nothing
// behind.
func (a *attempt) lookAndQueue(s *session) (*node, error) {
	q, stat, err := s.list(a.dir)
	if err != nil {
		return nil, err
	}
	b := q.barring(a.request.Mode)
	if b.count > 0 && !a.request.Wait {
		if q, stat, err = a.lookTwice(s, q, stat); err != nil {
			return nil, err
		}
		b = barrier{}
	}
	d, joins := a.guarded(q, stat)
	n, err := s.create(d)
	if err != nil {
		return nil, err
	}
	n.barrier = b
	if b.count > 0 {
		a.inQueue()
	}
	undisturbed := n.undisturbed(stat)
	if joins && undisturbed {
		n.token = tokenOf(stat.Mzxid)
		return n, nil
	}
	if n.rank == 0 {
		if err := s.persist(func() error { return s.recognise(n) }); err != nil {
			return nil, err
		}
	}
	if undisturbed && n.parent != nil && n.parent.Czxid == stat.Czxid {
		return n, nil
	}
	return n, a.lookOrRemove(n) // somebody came between, or the directory is another one by now
}

// guarded drafts a node that is made only if no writer has come since q and stat
// were read. A reader that would join the phase of others does so only while the
// last of them is there.
func (a *attempt) guarded(q queue, stat *gozk.Stat) (d draft, joins bool) {
	d = a.draft()
	d.guards = []any{&gozk.CheckVersionRequest{Path: a.dir, Version: stat.Version}}
	last, joins := q.companion()
	if joins = joins && a.request.Mode == backend.Shared; joins {
		d.guards = append(d.guards, &gozk.CheckVersionRequest{Path: a.dir + "/" + last.name, Version: -1})
		d.mark = false
	}
	return d, joins
}

// lookTwice makes sure that a request that does not wait, and finds q in its
// way, has to fail: a member of an ensemble may be behind. It returns ErrHeld or
// the queue in which nothing is in the way.
func (a *attempt) lookTwice(s *session, q queue, stat *gozk.Stat) (queue, *gozk.Stat, error) {
	if a.b.opts.Ensemble {
		if err := s.persist(func() error { _, err := s.conn.Sync(a.dir); return err }); err != nil {
			return nil, nil, err
		}
		var err error
		if q, stat, err = s.list(a.dir); err != nil {
			return nil, nil, err
		}
	}
	if q.barring(a.request.Mode).count > 0 {
		a.inQueue()
		return nil, nil, backend.ErrHeld
	}
	return q, stat, nil
}

// lookOrRemove sees what is ahead of a node, or gives it up.
func (a *attempt) lookOrRemove(n *node) error {
	err := n.look()
	if err != nil && !errors.Is(err, errVanished) {
		_ = n.session.remove(n.path())
	}
	return err
}

// recheck is after what time a waiting request looks whether it is still
// waiting for the right node. Nothing known makes that necessary.
const recheck = 2 * time.Minute

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
		w, err := n.session.watch(n.dir + "/" + n.barrier.last.name)
		if err != nil {
			return err
		}
		if err := a.park(n.session, w); err != nil {
			return err
		}
		if w.opens(n.barrier, n.mode) {
			return nil
		}
		if err := n.look(); err != nil {
			return err
		}
	}
	return nil
}

// opens reports whether w has seen the end of the barrier before a request of
// mode m. A writer that gave the lock back had it, so nobody is left before it;
// one that has merely gone may have become a reader, or never have had the lock.
func (w *watch) opens(b barrier, m backend.Mode) bool {
	select {
	case <-w.fired:
	default:
		return false
	}
	if b.last.mode == backend.Exclusive && w.released {
		return true
	}
	return b.count == 1 && (m == backend.Shared || b.last.mode == backend.Shared)
}

// park waits for w, but not for ever.
func (a *attempt) park(s *session, w *watch) error {
	net := time.NewTimer(backend.Jitter(recheck))
	defer net.Stop()
	select {
	case <-w.fired:
		return nil
	case <-net.C:
		return nil
	case <-a.left:
		return errLeft
	case <-s.over:
		return errOver
	}
}
