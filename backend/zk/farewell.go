package zk

import (
	"encoding/binary"
	"sync"
	"time"
)

// A farewell keeps the driver from reading answers once it is to close. It gives
// up its requests then but goes on reading, into results that those who asked
// already look at. Before the driver hears of the end, the answer that it is at
// has been read; after that it gets the answer to its own farewell only.
type farewell struct {
	mu     sync.Mutex
	busy   bool          // the driver has been given an answer and not come back
	begun  bool          // the driver is to close
	back   chan struct{} // closed when it has come back; nil: nobody waits
	number uint32        // of the request that says farewell
	sent   bool          // and whether there is one
}

// farewellLimit is for a message of which the server has sent a part.
const farewellLimit = time.Second

// begin waits until the driver is not at an answer any more. It reports false if
// that takes too long.
func (f *farewell) begin() bool {
	f.mu.Lock()
	f.begun = true
	if !f.busy {
		f.mu.Unlock()
		return true
	}
	back := make(chan struct{})
	f.back = back
	f.mu.Unlock()
	limit := time.NewTimer(farewellLimit)
	defer limit.Stop()
	select {
	case <-back:
		return true
	case <-limit.C:
		return false
	}
}

// note looks at a request.
func (f *farewell) note(request []byte) {
	if codeOf(request) != closeSession {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number, f.sent = binary.BigEndian.Uint32(request[4:]), true
}

// comeBack is called when the driver is done with an answer, or with the
// connection.
func (f *farewell) comeBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = false
	if f.back != nil {
		close(f.back)
		f.back = nil
	}
}

// lets reports whether the driver may have a message, which it is then at. The
// head of that is its length, and the number of the request.
func (f *farewell) lets(head []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun && !(f.sent && binary.BigEndian.Uint32(head[4:]) == f.number) {
		return false
	}
	f.busy = true
	return true
}
