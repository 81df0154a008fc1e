package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// A watcher watches a key that requests wait for. It stays for some seconds after the
// last of them has gone: keys are used again, and clients who lock in turns find the
// same key ahead of them each time. A request that finds its predecessor watched
// already sends neither a request to watch nor one to look what happened before the
// watch. The session's mutex guards the fields that change.
type watcher struct {
	session *session
	key     string
	stop    context.CancelFunc

	users        int
	recentlyUsed bool          // since the last check
	from         int64         // the watch has every event after this revision; zero: none yet
	deleted      int64         // the revision of the last deletion
	handedOver   keyVersion    // the key as it was last marked
	handedOverAt int64         // the revision of that
	ended        bool          // no event follows
	changed      chan struct{} // closed when a field changes; nil: nobody waits for that
}

const (
	watcherIdle  = 5 * time.Second // a watcher that nobody has used for so long ends
	watchersKept = 64              // one that nobody uses ends at once if there are more
)

// joinWatcher returns the watcher of key, for use until leave is called. It returns
// nil if the backend is being closed.
func (s *session) joinWatcher(key string) *watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watchers[key]
	if w == nil {
		w = &watcher{session: s, key: key}
		var ctx context.Context
		ctx, w.stop = s.watchContext()
		if !s.backend.janitor.Go(func(context.Context) { w.run(ctx) }) {
			w.stop()
			return nil
		}
		s.watchers[key] = w
	}
	w.users, w.recentlyUsed = w.users+1, true
	return w
}

func (w *watcher) leave() {
	s := w.session
	s.mu.Lock()
	defer s.mu.Unlock()
	w.users--
	if w.users == 0 && len(s.watchers) > watchersKept {
		w.end()
	}
}

// run watches from the present on: etcd serves watches from the past every 100 ms
// only.
func (w *watcher) run(ctx context.Context) {
	defer w.stop()
	on, release, err := w.session.backend.streams.take(ctx)
	if err != nil {
		return // it was ended
	}
	events := w.session.watch(ctx, w.stop, on, w.key, clientv3.WithCreatedNotify())
	release()
	idle := time.NewTicker(watcherIdle)
	defer idle.Stop()
	for running := true; running; {
		select {
		case reply, open := <-events:
			running = w.handleReply(on, reply, open)
		case <-idle.C:
			running = w.endIfIdle()
		}
	}
}

// handleReply reports whether to go on. A watcher that nobody uses ends with the
// request that the key belonged to, because each further event costs a message.
func (w *watcher) handleReply(on watchStream, reply clientv3.WatchResponse, open bool) bool {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	if reply.Created {
		w.from = reply.Header.Revision
	}
	over := false // the request of the key has ended
	for _, e := range reply.Events {
		over = w.handleEvent(e) || over
	}
	if !open && !w.ended {
		w.session.backend.streams.fail(on)
	}
	if !open || over && w.users == 0 {
		w.end()
	}
	w.notify()
	return !w.ended
}

// handleEvent reports whether e ended the request that the key belonged to. The
// deletion of a key that was marked did not: its request had ended before.
func (w *watcher) handleEvent(e *clientv3.Event) bool {
	switch {
	case e.Kv == nil: // of nothing
	case e.Type == clientv3.EventTypeDelete:
		wasMarked := w.handedOverAt > w.deleted
		w.deleted = e.Kv.ModRevision
		return !wasMarked
	case isMarked(e.Kv):
		w.handedOver, w.handedOverAt = versionOf(e.Kv), e.Kv.ModRevision
		return true
	}
	return false
}

// endIfIdle ends the watcher if it was not used since the last call, and reports
// whether it goes on.
func (w *watcher) endIfIdle() bool {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	if w.users == 0 && !w.recentlyUsed {
		w.end()
	}
	w.recentlyUsed = false
	return !w.ended
}

// end is called with the session's mutex held.
func (w *watcher) end() {
	w.ended = true
	w.stop()
	if w.session.watchers[w.key] == w {
		delete(w.session.watchers, w.key)
	}
	w.notify()
}

// notify is called with the session's mutex held.
func (w *watcher) notify() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// A watchState is what a watcher knows of a key that existed at some revision.
type watchState struct {
	deleted    bool          // the key was deleted since
	from       int64         // every event after this revision is known
	handedOver keyVersion    // the key as it was marked since
	ended      bool          // no event follows
	changed    chan struct{} // closed when the state changes
}

func (w *watcher) state(revision int64) watchState {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	r := watchState{deleted: w.deleted > revision, from: w.from, ended: w.ended, changed: w.changed}
	if w.handedOverAt > revision {
		r.handedOver = w.handedOver
	}
	return r
}

// watch watches key until cancel is called. Watch blocks until a member has answered;
// watch ends it after the time that a request may take.
func (s *session) watch(ctx context.Context, cancel context.CancelFunc, on watchStream, key string, o ...clientv3.OpOption) clientv3.WatchChan {
	defer time.AfterFunc(s.backend.timeout(), cancel).Stop()
	return s.backend.client.Watch(metadata.AppendToOutgoingContext(ctx, "dlock-stream", on.name()), key, o...)
}

// watchContext returns a context for a watch of the session.
func (s *session) watchContext() (context.Context, context.CancelFunc) {
	return context.WithCancel(clientv3.WithRequireLeader(s.ctx))
}
