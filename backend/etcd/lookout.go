package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lookout watches a key that requests wait for. It stays for a while when
// they have gone: keys are used again, and clients who lock by turns find the
// same one ahead each time. Who finds it already watched need not ask whether
// it was deleted before the watch was made. The session's mutex guards what
// changes.
type lookout struct {
	session *session
	key     string
	stop    context.CancelFunc

	users    int
	used     bool          // lately
	since    int64         // what happens after this revision is told; zero: nothing yet
	deleted  int64         // the revision of the last deletion
	released seenKey       // the key as it was last released
	marked   int64         // the revision of that
	ended    bool          // it tells nothing any more
	news     chan struct{} // closed when one of these changes; nil: nobody asked
}

const (
	lookoutRest = 5 * time.Second // one that was of no use for so long ends
	lookoutMost = 64              // of those that nobody uses are not kept beside so many
)

// lookout returns the one of key, in use until leave is called. It is nil if
// the backend is being closed.
func (s *session) lookout(key string) *lookout {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lookouts[key]
	if l == nil {
		l = &lookout{session: s, key: key}
		var ctx context.Context
		ctx, l.stop = s.watching()
		if !s.backend.janitor.Go(func(context.Context) { l.run(ctx) }) {
			l.stop()
			return nil
		}
		s.lookouts[key] = l
	}
	l.users, l.used = l.users+1, true
	return l
}

func (l *lookout) leave() {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	if l.users == 0 && len(s.lookouts) > lookoutMost {
		l.end()
	}
}

// run watches. The watch begins with the present: etcd serves those that begin
// with the past only every 100 ms.
func (l *lookout) run(ctx context.Context) {
	defer l.stop()
	events := l.session.watch(ctx, l.stop, l.key, clientv3.WithCreatedNotify())
	rest := time.NewTicker(lookoutRest)
	defer rest.Stop()
	for goesOn := true; goesOn; {
		select {
		case reply, open := <-events:
			goesOn = l.hear(reply, open)
		case <-rest.C:
			goesOn = l.inUse()
		}
	}
}

// hear takes what the watch has to tell. It reports false if that was the
// last: what nobody waits for is not worth a message each time.
func (l *lookout) hear(reply clientv3.WatchResponse, open bool) bool {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if reply.Created {
		l.since = reply.Header.Revision
	}
	over := false // nobody holds or waits with the key
	for _, e := range reply.Events {
		over = l.note(e) || over
	}
	if !open && !l.ended {
		l.session.streams++
	}
	if !open || over && l.users == 0 {
		l.end()
	}
	l.tell()
	return !l.ended
}

// note takes one event, and reports whether it was the end of a request. That a
// released key is deleted is not.
func (l *lookout) note(e *clientv3.Event) bool {
	switch {
	case e.Kv == nil: // of nothing
	case e.Type == clientv3.EventTypeDelete:
		wasReleased := l.marked > l.deleted
		l.deleted = e.Kv.ModRevision
		return !wasReleased
	case isReleased(e.Kv):
		l.released, l.marked = seen(e.Kv), e.Kv.ModRevision
		return true
	}
	return false
}

// inUse reports whether l has been used since it was last asked. If not, that
// is its end.
func (l *lookout) inUse() bool {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.users == 0 && !l.used {
		l.end()
	}
	l.used = false
	return !l.ended
}

// end is called with the session's mutex held.
func (l *lookout) end() {
	l.ended = true
	l.stop()
	if l.session.lookouts[l.key] == l {
		delete(l.session.lookouts, l.key)
	}
	l.tell()
}

// tell is called with the session's mutex held.
func (l *lookout) tell() {
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
}

// A report is what a lookout can say of a key that was there at some revision.
type report struct {
	uncertain bool          // it may have been deleted since
	released  seenKey       // it was released since
	ended     bool          // nothing more will be said
	news      chan struct{} // closed when there is another report
}

func (l *lookout) report(revision int64) report {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.news == nil {
		l.news = make(chan struct{})
	}
	r := report{uncertain: l.deleted > revision || l.since > revision, ended: l.ended, news: l.news}
	if l.marked > revision {
		r.released = l.released
	}
	return r
}
