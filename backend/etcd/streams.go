package etcd

import (
	"context"
	"strconv"
	"sync"
)

// watchStreams are the streams of a client's watches. The client library puts all watches
// whose contexts have the same metadata on one stream, and makes those one after the other,
// a round trip for each, also when they are made again after the connection has broken. So
// many watches are spread over several streams, and while one is made on a stream no other
// is: the library lets it wait while its timeout runs.
//
// A stream keeps the token that it was opened with. A server that has forgotten this token
// refuses every watch on the stream, so the watches after a failed one go to another.
type watchStreams struct {
	slots chan struct{} // one for each watch that is being made

	mu     sync.Mutex
	places [maxStreams]struct {
		failed  int // streams that were in this place before
		busy    bool
		watches int
	}
}

const (
	maxStreams       = 32
	watchesPerStream = 32 // before another one is opened
)

// A watchStream is one stream.
type watchStream struct{ place, number int }

func (w watchStream) name() string { return strconv.Itoa(w.place) + "." + strconv.Itoa(w.number) }

// take waits for a stream on which no watch is being made, or until ctx is done. It is the
// caller's until release is called.
func (w *watchStreams) take(ctx context.Context) (s watchStream, release func(), err error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return s, nil, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.place = -1
	for i, p := range w.places {
		if !p.busy && (s.place < 0 || p.watches/watchesPerStream < w.places[s.place].watches/watchesPerStream) {
			s.place = i
		}
	}
	p := &w.places[s.place]
	s.number, p.busy = p.failed, true
	p.watches++
	context.AfterFunc(ctx, func() { // the end of the watch
		w.mu.Lock()
		defer w.mu.Unlock()
		p.watches--
	})
	return s, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.busy = false
		<-w.slots
	}, nil
}

// forSessions is the stream for the watches of sessions' keys, which do not wait for others.
func (w *watchStreams) forSessions() watchStream {
	w.mu.Lock()
	defer w.mu.Unlock()
	return watchStream{0, w.places[0].failed}
}

// fail has the watches after this one go to another stream.
func (w *watchStreams) fail(s watchStream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := &w.places[s.place]; p.failed == s.number {
		p.failed++
	}
}
