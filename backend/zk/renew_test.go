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

// TestGrantAfterSleep renews a lease, and lets the machine sleep for longer than
// that lasts. An event that was under way is not enough for a waiter to be let in.
func TestGrantAfterSleep(t *testing.T) {
	b := new(Backend)
	s := newSession(b)
	s.connected, s.timeout = true, 30*time.Second
	sent := awake(time.Minute)
	s.lease = lease{sent: sent, until: sent.Add(s.timeout)}
	s.mu.Lock()
	_, fresh, _ := s.currentLease(s.timeout / 3)
	s.mu.Unlock()
	if fresh {
		t.Error("the lease of a session that may have expired is believed")
	}
	a := newAcquisition(b, backend.Request{Name: "m", Mode: backend.Exclusive, TTL: 30 * time.Second, Wait: true})
	a.setQueued()
	if h := a.startHold(&node{session: s, position: position{name: "n"}, sent: sent}, s.lease); h != nil {
		t.Errorf("granted for another %v", h.Granted)
	}
}

// TestNoLeaseOnUnansweredConnection looks at an answer when its connection has been
// replaced by one on which nobody has answered yet.
func TestNoLeaseOnUnansweredConnection(t *testing.T) {
	s := newSession(&Backend{})
	s.timeout = 6 * time.Second
	now := time.Now()
	s.connection = &connection{session: s}
	s.connection.noteSend(now)
	asked := now.Add(-3 * time.Second)
	s.extendLease(asked)
	if over := s.lease.until.Sub(asked.Add(s.timeout)); over > 0 {
		t.Errorf("believed in for %v too long", over)
	}
}

// TestAnswerThatExtendsNothing looks at an answer in an ensemble whose leader is known to
// have heard of no later request than before: the lease ends when it did, and is proven anew.
func TestAnswerThatExtendsNothing(t *testing.T) {
	s := newSession(&Backend{})
	s.timeout = 6 * time.Second
	opened := time.Now().Add(-2 * time.Second)
	s.connection = &connection{session: s, established: true}
	s.connection.noteSend(opened)
	s.extendLease(opened)
	asked := opened.Add(2 * time.Second)
	s.extendLease(asked)
	if !s.lease.sent.Equal(asked) {
		t.Errorf("proven %v before the request was sent", asked.Sub(s.lease.sent))
	}
	if more := s.lease.until.Sub(opened.Add(s.timeout)); more != 0 {
		t.Errorf("believed in for %v more than the leader has said", more)
	}
}
