package zk

import (
	"encoding/binary"
	"time"
)

// A rewatch keeps the driver from reading answers before it has told the server,
// on a new connection, which nodes it watches. It tells that together with the
// number of the last change it has seen, which every answer moves and nothing
// guards: the server might be told of a change that it is still to report.
type rewatch struct {
	told  chan struct{} // closed when the driver has; nil: it watches nothing
	noted bool          // by who writes
	heard bool          // by who reads
}

// rewatchLimit is for a driver that does not do as it is expected to.
const rewatchLimit = time.Second

// begin is called when the server has opened the session, with s.mu held and
// before anything else is read or written.
func (r *rewatch) begin(s *session) {
	for _, w := range s.watches {
		if w.isArmed() {
			r.told = make(chan struct{})
			return
		}
	}
}

// note looks at a request.
func (r *rewatch) note(request []byte) {
	if r.told != nil && !r.noted && codeOf(request) == setWatches {
		r.noted = true
		close(r.told)
	}
}

// isAnswer reports whether a message answers a request, with the number of a change.
func isAnswer(head []byte) bool {
	return int32(binary.BigEndian.Uint32(head[4:])) >= 0 && int64(binary.BigEndian.Uint64(head[8:])) > 0
}

// hold waits with a message that may be read too early: an answer to a request,
// with the number of a change. Its head is length, number of the request,
// number of the change.
func (r *rewatch) hold(s *session, head []byte) {
	if r.told == nil || r.heard || !isAnswer(head) {
		return
	}
	r.heard = true
	limit := time.NewTimer(rewatchLimit)
	defer limit.Stop()
	select {
	case <-r.told:
	case <-s.over:
	case <-limit.C:
	}
}
