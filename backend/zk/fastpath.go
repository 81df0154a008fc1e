package zk

// A fastPath lets a session that has been alone with a lock several times acquire it by
// a single create. The sequence number of the new node tells whether the session is
// alone again: its last node is deleted, and if another node had been created since,
// that would have taken the number that follows.
//
// The transaction of other requests writes to the lock's node; the create does not. So
// the session can watch the lock's node while it uses the fast path. The watch fires when
// another client joins the queue. The holder hears of that at once, and until then hands
// the lock over among its own goroutines. The watch fires as well when the lock's node is
// deleted, which restarts the sequence numbers. The server sends that event before it
// answers a later request.
//
// Tokens count on from that of the hold before, within the block of one transaction.
type fastPath struct {
	dir       string
	dirZxid   int64  // the transaction that created dir
	lastSeq   int32  // the sequence number of the last node
	token     uint64 // the last of its hold
	holds     int    // in a row
	isWatched bool
	isBroken  bool
}

// minFastPathHolds is how many holds in a row make a lock worth a watch.
const minFastPathHolds = 8

// joinFast creates a node by the fast path f. If the node is not alone it deletes the
// node and returns nil: others cannot see when the node joined.
func (a *acquisition) joinFast(s *session, f fastPath) (*node, error) {
	spec := a.nodeSpec()
	spec.isFast, spec.token = true, f.token+1
	n, err := s.createNode(spec)
	if err != nil || s.confirmFast(f, n) {
		return n, err
	}
	return nil, ignoreNoNode(n.leaveQueue())
}

// fastPathTo returns the fast path to the lock at dir, if the next hold can use it.
func (s *session) fastPathTo(dir string) (fastPath, bool) {
	s.mu.Lock()
	f := s.fastPath
	s.mu.Unlock()
	next := position{seq: f.lastSeq + 1}
	switch {
	case f.dir != dir, f.isBroken, f.holds < minFastPathHolds, next.hasOverflowed(), (f.token+1)%tokens == 0:
		return fastPath{}, false
	case !f.isWatched:
		return s.watchFastPath(f)
	}
	return f, true
}

// watchFastPath watches the lock's node, and makes sure that it is the node that f is
// about. It does not rely on an older watch, which the server may not know of.
func (s *session) watchFastPath(f fastPath) (fastPath, bool) {
	s.mu.Lock()
	w := s.newWatch(f.dir)
	s.mu.Unlock()
	s.setWatch(f.dir, w, s.getW)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.err != nil || w.zxid != f.dirZxid || s.fastPath != f {
		s.fastPath = fastPath{}
		return fastPath{}, false
	}
	s.fastPath.isWatched = true
	return s.fastPath, true
}

// confirmFast reports whether n, which was created by the fast path f, is alone in the
// queue. If so, n gets a token.
func (s *session) confirmFast(f fastPath, n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fastPath != f || n.seq != f.lastSeq+1 {
		s.fastPath = fastPath{}
		return false
	}
	n.isAlone, n.token = true, f.token+1
	return true
}

// noteRelease counts the hold h, which was released.
func (s *session) noteRelease(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.fastPath
	follows := f.dir == h.dir && f.lastSeq+1 == h.position.seq && !f.isBroken
	switch {
	case !h.wasAlone:
		*f = fastPath{}
		return
	case h.dirZxid != 0 && (!follows || h.dirZxid != f.dirZxid):
		*f = fastPath{dir: h.dir, dirZxid: h.dirZxid}
	case !follows:
		*f = fastPath{}
		return
	}
	f.lastSeq, f.token = h.position.seq, h.Token
	f.holds++
}

// breakFastPath ends the fast path to the lock at dir, or any if dir is empty. It is
// called with s.mu held.
func (s *session) breakFastPath(dir string) {
	if dir == "" || dir == s.fastPath.dir {
		s.fastPath.isBroken = true
	}
}

// hasFastPath reports whether there is a fast path to the lock at dir.
func (s *session) hasFastPath(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fastPath.dir == dir && !s.fastPath.isBroken
}
