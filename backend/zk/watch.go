package zk

import (
	"context"
	"errors"
	"slices"
	"strings"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// A change is what has become of a node that is watched.
type change uint8

const (
	deleted  change = iota // and nothing has replaced it
	missing                // it does not exist
	written                // it was written to, and may have been replaced since
	released               // it was deleted, and its owner had the lock
)

// A watch waits for a change of one node. All who are interested in the node share it,
// and it stays when they have left: the driver cannot take a watch back. A watch fires
// once.
type watch struct {
	set        chan struct{} // closed when the server has answered
	err        error         // set before that
	zxid       int64         // set before that: the transaction that created the node
	connection *connection   // over which the watch was set

	fired  chan struct{} // closed when the node has changed
	change change        // set before that
}

// watchNode returns the watch of a node. It has fired if the node does not exist.
func (s *session) watchNode(path string) (*watch, error) { return s.getWatch(path, s.getW) }

// getWatch returns the watch for key. If there is none it has a new one set by request.
func (s *session) getWatch(key string, request func(key string) (*gozk.Stat, error)) (*watch, error) {
	s.mu.Lock()
	w := s.watches[key]
	first := w == nil
	if first {
		w = s.newWatch(key)
	}
	s.mu.Unlock()
	if first {
		s.setWatch(key, w, request)
	}
	select {
	case <-w.set:
		return w, w.err
	case <-s.ctx.Done():
		return nil, errSessionEnded
	}
}

// newWatch is called with s.mu held. The watch is not set yet.
func (s *session) newWatch(key string) *watch {
	w := &watch{set: make(chan struct{}), fired: make(chan struct{}), connection: s.connection}
	s.watches[key] = w
	return w
}

// setWatch has the server watch key, by a request that is repeated until its outcome is clear.
func (s *session) setWatch(key string, w *watch, request func(string) (*gozk.Stat, error)) {
	defer close(w.set)
	w.err = s.retry(func() error {
		stat, err := request(key)
		if err == nil && stat != nil {
			w.zxid = stat.Czxid
		}
		return err
	})
	if errors.Is(w.err, gozk.ErrNoNode) {
		w.err = nil
		s.fire(key, missing)
		return
	}
	if w.err != nil {
		s.mu.Lock()
		delete(s.watches, key)
		s.mu.Unlock()
	}
}

func (s *session) getW(path string) (*gozk.Stat, error) {
	_, stat, _, err := s.client.GetW(path)
	return stat, err
}

// existsW watches a signal, which does not exist yet.
func (s *session) existsW(signal string) (*gozk.Stat, error) {
	_, _, _, err := s.client.ExistsW(signal)
	return nil, err
}

// fire tells everybody who watches the node of its change.
func (s *session) fire(path string, c change) {
	s.mu.Lock()
	w, h := s.watches[path], s.holds[path]
	delete(s.watches, path)
	if c == deleted {
		delete(s.watches, childrenKey(path))
		delete(s.watches, signalOf(path)) // there will be none
	}
	switch {
	case h == nil:
	case h.isReplacing || c == released: // the downgrade or the release handles it
		h = nil
	case c == written: // no loss
		h.isWatched = false
		h = nil
	default:
		s.dropHold(h)
	}
	if c == released && w != nil && (!isClosed(w.set) || w.zxid == 0) {
		c = missing // w was set after the deletion: the signal is that of a waiter
	}
	if c == deleted && w != nil && w.connection != s.connection {
		c = missing // the server has set w anew, and knows nothing more
	}
	s.breakFastPath(path)
	writer := s.writers[path]
	s.mu.Unlock()
	if writer != nil && writer.isFast && c == written {
		s.tellWanted(writer)
	}
	if w != nil {
		w.change = c
		close(w.fired)
	}
	if h != nil {
		s.backend.janitor.Go(func(context.Context) { h.Lost(h.removalCause(s.broken())) })
	}
}

// fireSignal fires the watch of the node whose signal that is.
func (s *session) fireSignal(signal string) {
	s.mu.Lock()
	delete(s.watches, signal)
	s.mu.Unlock()
	if path, ok := strings.CutSuffix(signal, signalSuffix); ok {
		s.fire(path, released)
	}
}

// maxWatching is how many holds a session begins to watch at a time: enough for many
// holds, and not so many that requests for locks have to wait.
const maxWatching = 8

// watchHolds begins to watch the nodes of holds in the background, so that their owners
// hear of a loss at once. That happens at the first renewal, because most holds are over
// by then and have cost nothing.
func (s *session) watchHolds(holds []*hold) {
	s.mu.Lock()
	holds = slices.DeleteFunc(holds, func(h *hold) bool { return h.isWatched || s.holds[h.path] != h })
	for _, h := range holds {
		h.isWatched = true
	}
	s.mu.Unlock()
	if len(holds) > 0 {
		s.backend.janitor.Go(func(context.Context) {
			backend.ForEachPart(holds, 1, maxWatching, func(one []*hold) {
				s.watching <- struct{}{}
				defer func() { <-s.watching }()
				s.watchHold(one[0])
			})
		})
	}
}

// watchHold watches the node of a hold. As long as nobody waits for an exclusive one, it
// watches the children of the lock's node instead: one watch that tells of the end of the
// hold and of a waiter. By the fast path the watch of the lock's node tells of a waiter.
func (s *session) watchHold(h *hold) {
	s.mu.Lock()
	path := h.path
	isHeld, isOnly := s.holds[path] == h, false
	hears := !h.isWanted && !h.isFast && s.writers[h.dir] == h
	s.mu.Unlock()
	if !isHeld {
		return
	}
	var err error
	if hears {
		isOnly, err = s.watchChildren(h, path)
	}
	if !isOnly && err == nil {
		_, err = s.watchNode(path)
	}
	if err != nil {
		s.mu.Lock()
		h.isWatched = false // until the next renewal
		s.mu.Unlock()
	}
}

// childrenKey is the key of the watch of a node's children. No path ends with a slash.
func childrenKey(dir string) string { return dir + "/" }

// watchChildren watches the children of the lock's node, and reports whether path is the
// only one. It does not rely on an older watch, which the server may not know of.
func (s *session) watchChildren(h *hold, path string) (isOnly bool, err error) {
	s.mu.Lock()
	w := s.newWatch(childrenKey(h.dir))
	s.mu.Unlock()
	var children []string
	s.setWatch(childrenKey(h.dir), w, func(string) (stat *gozk.Stat, err error) {
		children, stat, _, err = s.client.ChildrenW(h.dir)
		return stat, err
	})
	if w.err != nil {
		return false, w.err
	}
	q := parseQueue(children)
	if _, ok := q.find(path[len(h.dir)+1:]); !ok {
		s.fire(path, missing)
		return true, nil
	}
	if len(q) > 1 {
		s.tellWanted(h)
	}
	return len(q) == 1, nil
}

// handleChildren has the children listed anew for the hold that watches them.
func (s *session) handleChildren(dir string) {
	s.mu.Lock()
	delete(s.watches, childrenKey(dir))
	h := s.writers[dir]
	hears := h != nil && h.isWatched && !h.isWanted && !h.isFast
	if hears {
		h.isWatched = false
	}
	s.mu.Unlock()
	if hears {
		s.watchHolds([]*hold{h})
	}
}

// tellWanted tells the owner of a hold once that somebody waits for the lock.
func (s *session) tellWanted(h *hold) {
	s.mu.Lock()
	told := h.isWanted
	h.isWanted = true
	s.mu.Unlock()
	if !told {
		h.Wanted()
	}
}
