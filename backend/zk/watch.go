package zk

import (
	"context"
	"errors"
	"strings"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// A change is what has become of a node that is watched.
type change uint8

const (
	gone    change = iota // it has been deleted, and nothing was put in its place
	missing               // it is not there
	written               // it has been written to, and may have been replaced since
	freed                 // its owner had the lock and has given it back
)

// A watch waits for a change of one node. All who are interested in the node share
// it, also when those who asked for it have left: the driver cannot tell the server
// to forget a watch. A watch that fires has fired for good.
type watch struct {
	armed chan struct{} // closed when the server has answered
	err   error         // set then
	made  int64         // set then: the transaction that made the node
	link  *link         // over which it was asked for

	fired  chan struct{} // closed when the node has changed
	change change        // set then
}

// watch returns the watch of a node that was there. It has fired if the node is
// gone.
func (s *session) watch(path string) (*watch, error) { return s.watchBy(path, s.getW) }

// watchBy returns the watch that key stands for, and has a new one armed.
func (s *session) watchBy(key string, arm func(key string) (*gozk.Stat, error)) (*watch, error) {
	s.mu.Lock()
	w := s.watches[key]
	first := w == nil
	if first {
		w = s.newWatch(key)
	}
	s.mu.Unlock()
	if first {
		s.arm(key, w, arm, s.persist)
	}
	select {
	case <-w.armed:
		return w, w.err
	case <-s.over:
		return nil, errOver
	}
}

// newWatch is called with s.mu held. The watch is still to be armed.
func (s *session) newWatch(key string) *watch {
	w := &watch{armed: make(chan struct{}), fired: make(chan struct{}), link: s.link}
	s.watches[key] = w
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

func (s *session) arm(key string, w *watch, arm func(string) (*gozk.Stat, error), persist func(try func() error) error) {
	defer close(w.armed)
	w.err = persist(func() error {
		stat, err := arm(key)
		if err == nil && stat != nil {
			w.made = stat.Czxid
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
	_, stat, _, err := s.conn.GetW(path)
	return stat, err
}

// existsW watches a mark, which is not there.
func (s *session) existsW(mark string) (*gozk.Stat, error) {
	_, _, _, err := s.conn.ExistsW(mark)
	return nil, err
}

// watchBarrier watches the last node of a barrier. If there are others before it,
// its deletion would not tell whether it had the lock: then its mark is watched too.
func (s *session) watchBarrier(dir string, b barrier) (*watch, error) {
	path := dir + "/" + b.last.name
	w, err := s.watch(path)
	if err != nil || w.hasFired() || b.count == 1 || b.last.mode == backend.Shared {
		return w, err
	}
	_, err = s.watchBy(markOf(path), s.existsW)
	if w.hasFired() { // the mark may have come and gone before it was watched
		s.mu.Lock()
		delete(s.watches, markOf(path))
		s.mu.Unlock()
	}
	return w, err
}

func (w *watch) hasFired() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// opens reports whether w has seen the end of the barrier.
func (w *watch) opens(b barrier) bool {
	return w.hasFired() && (w.change == freed || w.change == gone && b.count == 1)
}

// fire tells everybody who watches the node what has become of it.
func (s *session) fire(path string, c change) {
	s.mu.Lock()
	w, h := s.watches[path], s.holds[path]
	delete(s.watches, path)
	if c == gone {
		delete(s.watches, crowdKey(path))
	}
	switch {
	case h == nil:
	case h.moving || c == freed: // its downgrade, or its release, says what has become of it
		h = nil
	case c == written: // it has not been taken away
		h.watched = false
		h = nil
	default:
		s.drop(h)
	}
	if c == freed && w != nil && (!w.isArmed() || w.made == 0) {
		c = missing // the mark is of the node's end, which another watch has heard of
	}
	if c == gone && w != nil && w.link != s.link {
		c = missing // all that the server knew when it was told of the watch again
	}
	s.breakStreak(path)
	wanted := s.writers[path]
	s.mu.Unlock()
	if wanted != nil && wanted.streak && c == written {
		s.want(wanted)
	}
	if w != nil {
		w.change = c
		close(w.fired)
	}
	if h != nil {
		s.b.lose([]*held{h}, errRemoved)
	}
}

// fireMark is fire for the mark of a node.
func (s *session) fireMark(mark string) {
	s.mu.Lock()
	delete(s.watches, mark)
	s.mu.Unlock()
	if path, ok := strings.CutSuffix(mark, markSuffix); ok {
		s.fire(path, freed)
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
	s.startArmers()
}

// startArmers is called with s.mu held.
func (s *session) startArmers() {
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
		if err := s.armHold(h, path); err != nil {
			s.mu.Lock()
			h.watched = false // again at the next renewal
			s.mu.Unlock()
		}
	}
}
