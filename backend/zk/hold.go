package zk

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A hold is the backend's own part of a backend.Hold.
type hold struct {
	*backend.Hold
	session  *session
	dir      string
	position position
	wasAlone bool  // in the queue when it was granted
	waited   bool  // for others in the queue
	isFast   bool  // it was granted by the fast path, and the lock's node is watched
	dirZxid  int64 // the transaction that created dir; zero: unknown

	nodeMu      sync.Mutex // held while its node is being replaced or deleted
	path        string     // guarded by session.mu
	isWatched   bool       // its node is; guarded by session.mu
	isWanted    bool       // its owner knows that somebody waits; guarded by session.mu
	isReplacing bool       // its node is being replaced; guarded by session.mu

	deletion  deletion
	releasing atomic.Bool   // somebody releases it
	released  chan struct{} // closed when err is set
	err       error

	deletedLater atomic.Bool // the server has refused that at first
}

func (h *hold) isExclusive() bool { return h.position.mode == backend.Exclusive }

// newHold returns the hold of a node that has no predecessors. An event says that the
// predecessors are gone, but not that this session lives: newHold renews the session's
// lease unless that was done shortly before.
func (a *acquisition) newHold(n *node) (*backend.Hold, error) {
	s := n.session
	var pause backend.Backoff
	for {
		l, err := s.renewLease(s.grantedTimeout()/3, a.left)
		switch {
		case err == nil:
			if h := a.startHold(n, l); h != nil {
				return h, nil
			}
		case errors.Is(err, errCallerLeft), errors.Is(err, errSessionEnded), !isUnclear(err):
			return nil, err
		}
		if !backend.Sleep(s.ctx, pause.Next()) {
			return nil, errSessionEnded
		}
	}
}

// startHold returns a hold under the lease l, or nil if the lease or the session has
// ended.
func (a *acquisition) startHold(n *node, l lease) *backend.Hold {
	if l.left() <= 0 {
		return nil
	}
	s, r := n.session, a.request
	waited, sent := isClosed(a.queued), n.sent
	if waited {
		sent = l.sent // the node is older than the hold, and no answer has granted it
	}
	h := &backend.Hold{Request: r, Token: n.token, Sent: sent, Granted: l.until.Sub(sent)}
	own := &hold{
		session: s, Hold: h, dir: n.dir, position: n.position, path: n.path(),
		wasAlone: n.isAlone, isFast: n.isFast && n.isAlone, waited: waited, released: make(chan struct{}),
	}
	if n.dirStat != nil {
		own.dirZxid = n.dirStat.Czxid
	}
	h.State = own
	if waited && n.own == nil { // nothing proves that the node exists: the renewal has it watched
		h.RenewIn = time.Since(sent) + h.Granted/ownWatchPart
	}
	h.TellsWanted = own.isExclusive() && (own.isFast || !r.Fixed)
	h.WantedAtOnce = own.isFast
	if !s.addHold(own) {
		return nil
	}
	if own.isFast && !s.hasFastPath(own.dir) { // somebody has joined the queue since the create
		s.tellWanted(own)
	}
	return h
}

// addHold has the session tell h of a loss. It reports false if h cannot be held.
func (s *session) addHold(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || h.Granted <= 0 || !s.connected && s.backend.opts.Strict {
		return false
	}
	s.holds[h.path] = h
	if h.isExclusive() {
		s.writers[h.dir] = h
	}
	return true
}

// isHeld reports whether h was neither released nor lost.
func (s *session) isHeld(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[h.path] == h
}

// removeHold makes sure that the end of h's node is no loss.
func (s *session) removeHold(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds[h.path] == h {
		s.dropHold(h)
	}
}

// dropHold is called with s.mu held.
func (s *session) dropHold(h *hold) {
	delete(s.holds, h.path)
	if s.writers[h.dir] == h {
		delete(s.writers, h.dir)
	}
}

// reportLoss tells the owners of holds of their loss. It does not wait for them.
func (b *Backend) reportLoss(holds []*hold, cause error) {
	if len(holds) == 0 {
		return
	}
	b.janitor.Go(func(context.Context) {
		for _, h := range holds {
			h.Lost(cause)
		}
	})
}

// Transfer implements backend.Transferer. Whoever is granted later has a node of a later
// transaction, and with it a later block of tokens.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) { return backend.NextInBlock(h, tokens) }
