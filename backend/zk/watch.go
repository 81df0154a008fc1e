package zk

import (
	"context"
	"errors"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// A watch waits for one node to go. All who are interested in the
// node share it, also when those who asked for it have left: the server cannot
// be told to forget a watch.
type watch struct {
	armed chan struct{} // closed when the server has answered
	err   error         // set then
	made  int64         // set then: the transaction that made the node

	fired    chan struct{} // closed when the node is gone
	released bool          // set then: its owner has given back what it held
}

// watch returns the watch of a node that was there. It has fired if the node is
// gone.
func (s *session) watch(path string) (*watch, error) {
	s.mu.Lock()
	w := s.watches[path]
	first := w == nil
	if first {
		w = s.newWatch(path)
	}
	s.mu.Unlock()
	if first {
		s.arm(path, w, s.persist)
	}
	select {
	case <-w.armed:
		return w, w.err
	case <-s.over:
		return nil, errOver
	}
}

// newWatch is called with s.mu held. The watch is still to be armed.
func (s *session) newWatch(path string) *watch {
	w := &watch{armed: make(chan struct{}), fired: make(chan struct{})}
	s.watches[path] = w
	return w
}

// isArmed reports whether the server was asked to tell.
func (w *watch) isArmed() bool {
	select {
	case <-w.armed:
		return true
	default:
		return false
	}
}

func (s *session) arm(path string, w *watch, persist func(try func() error) error) {
	defer close(w.armed)
	w.err = persist(func() error {
		_, stat, _, err := s.conn.GetW(path)
		if err == nil {
			w.made = stat.Czxid
		}
		return err
	})
	if errors.Is(w.err, gozk.ErrNoNode) {
		w.err = nil
		s.fire(path, false)
		return
	}
	if w.err != nil {
		s.mu.Lock()
		delete(s.watches, path)
		s.mu.Unlock()
	}
}

// fire tells everybody who watches the node that it has gone. Who gives back a
// lock that others may wait for changes the node as it deletes it, of which the
// server reports the change alone.
func (s *session) fire(path string, released bool) {
	s.mu.Lock()
	w, h := s.watches[path], s.holds[path]
	delete(s.watches, path)
	if h != nil && h.moving {
		h = nil // its downgrade says what has become of it
	} else {
		delete(s.holds, path)
	}
	s.breakStreak(path)
	s.mu.Unlock()
	if w != nil {
		w.released = released
		close(w.fired)
	}
	if h != nil {
		s.b.lose([]*held{h}, errRemoved)
	}
}

// watchHolds begins to watch the nodes of holds, so that their holders hear of
// it when somebody removes them. It is done at the first renewal: most holds
// are over by then and have cost nothing.
func (s *session) watchHolds(holds []*backend.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		if held := h.State.(*held); !held.watched && s.holds[held.path] == held {
			held.watched = true
			s.bare = append(s.bare, held)
		}
	}
	for s.armers < min(len(s.bare), maxArmers) && s.b.janitor.Go(func(context.Context) { s.armHolds() }) {
		s.armers++
	}
}

// maxArmers is how many requests to watch holds are under way at a time: enough
// for a client with many, and not so many that those who lock have to wait.
const maxArmers = 8

func (s *session) armHolds() {
	for {
		s.mu.Lock()
		if len(s.bare) == 0 || s.cause != nil {
			s.armers, s.bare = s.armers-1, nil
			s.mu.Unlock()
			return
		}
		h := s.bare[0]
		s.bare = s.bare[1:]
		path := h.path
		held := s.holds[path] == h
		s.mu.Unlock()
		if !held {
			continue
		}
		if _, err := s.watch(path); err != nil {
			s.mu.Lock()
			h.watched = false // again at the next renewal
			s.mu.Unlock()
		}
	}
}
