package zk

// A streak is a lock that this session has taken and given back several times,
// each time alone and with nobody between. Then a node tells by its number that it
// is alone again: the one before it is gone, and whoever came since would have
// taken the number that follows. Such a plain node is made without a change of the
// lock's node. Its hold has the token after that of the one before; there are as many
// as for local hand-over.
//
// So the lock's node can be watched meanwhile: others who come change its data. The
// holder hears of them at once, and passes the lock on among its goroutines for as
// long as nobody does. The node could also be removed and made anew, with numbers
// that begin at zero. A session hears of that before it has the answer to a request
// that came later.
type streak struct {
	dir     string
	made    int64  // the transaction that made dir
	last    int32  // the number of the node made last
	token   uint64 // the last of its hold
	length  int    // how many holds
	watched bool
	broken  bool
}

// minStreak is how many holds show that a lock is worth a watch.
const minStreak = 8

// extend notes that h has been given back.
func (s *session) extend(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.streak
	follows := k.dir == h.dir && k.last+1 == h.place.seq && !k.broken
	switch {
	case !h.alone:
		*k = streak{}
		return
	case h.made != 0 && (!follows || h.made != k.made):
		*k = streak{dir: h.dir, made: h.made}
	case !follows:
		*k = streak{}
		return
	}
	k.last, k.token = h.place.seq, h.hold.Token
	k.length++
}

// breakStreak ends the streak on dir, or any if dir is empty. It is called with
// s.mu held.
func (s *session) breakStreak(dir string) {
	if dir == "" || dir == s.streak.dir {
		s.streak.broken = true
	}
}

// onStreak reports whether there is a streak on dir.
func (s *session) onStreak(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streak.dir == dir && !s.streak.broken
}

// streakOn returns the streak on dir, if its next hold can be numbered by it.
func (s *session) streakOn(dir string) (streak, bool) {
	s.mu.Lock()
	k := s.streak
	s.mu.Unlock()
	next := place{seq: k.last + 1}
	switch {
	case k.dir != dir, k.broken, k.length < minStreak, next.worn(), (k.token+1)%tokens == 0:
		return streak{}, false
	case !k.watched:
		return s.watchStreak(k)
	}
	return k, true
}

// once is persist of who does not have the time for that.
func once(try func() error) error { return try() }

// watchStreak watches the node of a lock, and makes sure that it is still the one
// that the streak is about. An older watch that the holds since then have not fired
// is none that the server knows of.
func (s *session) watchStreak(k streak) (streak, bool) {
	s.mu.Lock()
	w := s.newWatch(k.dir)
	s.mu.Unlock()
	s.arm(k.dir, w, s.getW, once)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.err != nil || w.made != k.made || s.streak != k {
		s.streak = streak{}
		return streak{}, false
	}
	s.streak.watched = true
	return s.streak, true
}

// continues reports whether n, made while k was the streak, is the only one, and gives
// it a token then.
func (s *session) continues(k streak, n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streak != k || n.seq != k.last+1 {
		s.streak = streak{}
		return false
	}
	n.alone, n.token = true, k.token+1
	return true
}
