package zk

import gozk "github.com/go-zookeeper/zk"

// crowdKey is the key of the watch of the children of dir. No path ends like that.
func crowdKey(dir string) string { return dir + "/" }

// armHold has the server tell of the end of a hold. While nobody waits for an
// exclusive one, a watch of all children of the lock's node tells of both, its end
// and somebody who comes, for the price of one.
func (s *session) armHold(h *held, path string) error {
	if s.listensFor(h) {
		if alone, err := s.watchCrowd(h, path); alone || err != nil {
			return err
		}
	}
	_, err := s.watch(path)
	return err
}

// listensFor reports whether it is still to be heard whether somebody waits for h.
func (s *session) listensFor(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !h.wanted && !h.streak && s.writers[h.dir] == h
}

// watchCrowd watches the children of a lock's node, and reports whether path is the
// only one.
func (s *session) watchCrowd(h *held, path string) (alone bool, err error) {
	s.mu.Lock()
	w := s.newWatch(crowdKey(h.dir)) // the server may know nothing of an older one
	s.mu.Unlock()
	var children []string
	s.arm(crowdKey(h.dir), w, func(string) (stat *gozk.Stat, err error) {
		children, stat, _, err = s.conn.ChildrenW(h.dir)
		return stat, err
	}, s.persist)
	if w.err != nil {
		return false, w.err
	}
	q := parseQueue(children)
	if _, ok := q.find(path[len(h.dir)+1:]); !ok {
		s.fire(path, missing)
		return true, nil
	}
	if len(q) > 1 {
		s.want(h)
	}
	return len(q) == 1, nil
}

// stir has those children listed anew that have changed, if that was waited for.
func (s *session) stir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, crowdKey(dir))
	if h := s.writers[dir]; h != nil && h.watched && !h.wanted && !h.streak {
		s.bare = append(s.bare, h)
		s.startArmers()
	}
}

// want tells the owner of a hold that somebody waits for the lock.
func (s *session) want(h *held) {
	s.mu.Lock()
	told := h.wanted
	h.wanted = true
	s.mu.Unlock()
	if o := h.hold.Observer; o != nil && !told {
		o.Wanted()
	}
}
