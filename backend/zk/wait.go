package zk

import (
	"context"
	"errors"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// checkEvery is how often a waiter checks its predecessor, in case an event was lost. No
// such case is known.
const checkEvery = 2 * time.Minute

// awaitGrant returns when n has no predecessors any more.
func (a *acquisition) awaitGrant(n *node) error {
	for n.predecessors.count > 0 {
		a.setQueued()
		if !a.request.Wait {
			return backend.ErrHeld
		}
		if !isClosed(a.left) {
			a.request.Queued()
		}
		w, err := n.session.watchPredecessor(n.dir, n.predecessors)
		if err != nil {
			return err
		}
		if err := a.awaitChange(n, w); err != nil {
			return err
		}
		if w.grants(n.predecessors) {
			return nil
		}
		if err := n.findPredecessors(); err != nil {
			return err
		}
	}
	return nil
}

// ownWatchPart is after which part of a session timeout the node of a request that waits is
// watched, or that of its hold. That is a request more, and most waits and holds are shorter.
const ownWatchPart = 15

// awaitChange returns when w has fired. Events come in order: if somebody has deleted the
// node of n before w fired, awaitChange returns errWaiterRemoved.
func (a *acquisition) awaitChange(n *node, w *watch) error {
	check := time.NewTimer(backend.Jitter(a.backend.checkEvery))
	defer check.Stop()
	watchOwn := time.NewTimer(n.session.grantedTimeout()/ownWatchPart - time.Since(n.sent))
	defer watchOwn.Stop()
	for {
		select {
		case <-w.fired:
			return n.checkOwn()
		case <-n.ownFired():
			if err := n.checkOwn(); err != nil {
				return err
			}
			n.own = nil
			watchOwn.Reset(0)
		case <-watchOwn.C:
			if n.own != nil {
				continue
			}
			var err error
			if n.own, err = n.session.watchNode(n.path()); err != nil {
				return err
			}
		case <-a.left:
			return errCallerLeft
		case <-n.session.ctx.Done():
			return errSessionEnded
		case <-check.C:
			if err := n.checkPredecessor(); err != nil {
				return err
			}
			check.Reset(backend.Jitter(a.backend.checkEvery))
		}
	}
}

// ownFired is closed when the node of n has changed. It is nil while nobody watches that.
func (n *node) ownFired() <-chan struct{} {
	if n.own == nil {
		return nil
	}
	return n.own.fired
}

// checkOwn returns errWaiterRemoved if the node of n is known to be gone.
func (n *node) checkOwn() error {
	if n.own != nil && isClosed(n.own.fired) && n.own.change != written {
		return errWaiterRemoved
	}
	return nil
}

// findPredecessors lists the queue to set the predecessors of n.
func (n *node) findPredecessors() error {
	q, err := n.look()
	if err != nil && !errors.Is(err, gozk.ErrNoNode) {
		return err
	}
	own, ok := q.find(n.name)
	if !ok {
		return errWaiterRemoved
	}
	n.predecessors = q.predecessorsOf(own)
	return nil
}

// look lists the queue, or shares the list of others if the queue is long.
func (n *node) look() (queue, error) {
	if n.predecessors.count > longQueue || n.dirStat != nil && n.dirStat.NumChildren > longQueue {
		return n.session.share(n.dir)
	}
	q, _, err := n.session.listQueue(n.dir)
	return q, err
}

// checkPredecessor makes sure that n and its last predecessor still exist. It takes two
// requests, however long the queue is.
func (n *node) checkPredecessor() error {
	switch found, err := n.session.exists(n.path()); {
	case err != nil:
		return err
	case !found:
		return errWaiterRemoved
	}
	last := n.dir + "/" + n.predecessors.last.name
	found, err := n.session.exists(last)
	if err == nil && !found {
		n.session.fire(last, written) // so that waiters list the queue
	}
	return err
}

// watchPredecessor watches the last of the predecessors. If it is not the only one, its
// deletion does not tell whether it had the lock. Then its signal is watched too.
func (s *session) watchPredecessor(dir string, p predecessors) (*watch, error) {
	path := dir + "/" + p.last.name
	w, err := s.watchNode(path)
	if err != nil || isClosed(w.fired) || p.count == 1 || p.last.mode == backend.Shared {
		return w, err
	}
	_, err = s.getWatch(signalOf(path), s.existsW)
	if isClosed(w.fired) { // the signal may have come before it was watched
		s.mu.Lock()
		delete(s.watches, signalOf(path))
		s.mu.Unlock()
	}
	return w, err
}

// grants reports whether w has seen that none of the predecessors is left.
func (w *watch) grants(p predecessors) bool {
	return isClosed(w.fired) && (w.change == released || w.change == deleted && p.count == 1)
}

// leaveQueue deletes a node that does not hold the lock. It tries until the node is gone.
func (n *node) leaveQueue() error {
	d := deletion{session: n.session, path: n.path()}
	if n.mode == backend.Exclusive && !n.isAlone {
		d.signal = signalLast
	}
	s := n.session
	err := s.retry(d.try)
	if ignoreNoNode(err) != nil && s.ctx.Err() == nil { // it stays for now
		s.backend.reserve(s, pathBound(n.dir))
		s.backend.janitor.Go(func(context.Context) { s.deleteLater(&d, pathBound(n.dir)) })
	}
	return err
}
