package zk

import (
	"testing"
	"time"
	"unsafe"

	"github.com/dlock-go/dlock/backend"
)

// awake returns the time of d ago as a machine reads it that has slept since: the
// monotonic clock has moved on by very little.
func awake(d time.Duration) time.Time {
	type clocks struct {
		wall uint64
		mono int64
		_    *time.Location
	}
	t, now := time.Now().Add(-d), time.Now()
	(*clocks)(unsafe.Pointer(&t)).mono = (*clocks)(unsafe.Pointer(&now)).mono
	return t
}

// TestGrantAfterSleep proves a session, and lets the machine sleep for longer than
// that lasts. An event that was under way is not enough for a waiter to be let in.
func TestGrantAfterSleep(t *testing.T) {
	b := &Backend{closed: make(chan struct{})}
	s := newSession(b)
	s.connected, s.timeout = true, 30*time.Second
	sent := awake(time.Minute)
	s.proof = proof{sent: sent, until: sent.Add(s.timeout)}
	if _, fresh, _ := s.known(s.timeout / 3); fresh {
		t.Error("the proof of a session that may have expired is believed")
	}
	a := newAttempt(b, backend.Request{Name: "m", Mode: backend.Exclusive, TTL: 30 * time.Second, Wait: true})
	a.inQueue()
	if h := a.claim(&node{session: s, place: place{name: "n"}, sent: sent}, s.proof); h != nil {
		t.Errorf("granted for another %v", h.Granted)
	}
}

// TestEndHeardAfterReconnect has the server say that a writer's node is gone when it
// is told of the watch again. A downgrade may have replaced it meanwhile.
func TestEndHeardAfterReconnect(t *testing.T) {
	s := newSession(&Backend{})
	alone := barrier{count: 1, last: place{mode: backend.Exclusive}}
	s.link = &link{session: s}
	w := s.newWatch("/dlock/m/n")
	s.fire("/dlock/m/n", gone)
	if !w.opens(alone) {
		t.Error("the end of the only node ahead lets nobody in")
	}
	w = s.newWatch("/dlock/m/n")
	s.link = &link{session: s}
	s.fire("/dlock/m/n", gone)
	if w.opens(alone) {
		t.Error("a writer is let in without a look")
	}
}
