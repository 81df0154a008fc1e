package zk

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// TestSignalBetweenTwoEvents has a waiter leave, which deletes its node and sends its signal
// in one transaction. A watch that is set between the two events is granted nothing.
func TestSignalBetweenTwoEvents(t *testing.T) {
	s := newSession(&Backend{})
	s.connection = &connection{}
	name := strings.Repeat("a", 32) + "-w-0000000001"
	place, ok := parsePosition(name)
	if !ok {
		t.Fatal("no name of a child")
	}
	path := "/dlock/x/" + name
	before, signal := s.newWatch(path), s.newWatch(signalOf(path))
	close(before.set)
	close(signal.set)
	s.fire(path, deleted)
	between := s.newWatch(path) // still to be armed
	s.fireSignal(signalOf(path))
	behind := predecessors{count: 2, last: place}
	if before.grants(behind) || between.grants(behind) {
		t.Error("the end of a waiter let the next in beside the holder")
	}
}

// TestEndHeardAfterReconnect has the server say that a writer's node is gone when it
// is told of the watch again. A downgrade may have replaced it meanwhile.
func TestEndHeardAfterReconnect(t *testing.T) {
	s := newSession(&Backend{})
	alone := predecessors{count: 1, last: position{mode: backend.Exclusive}}
	s.connection = &connection{session: s}
	w := s.newWatch("/dlock/m/n")
	s.fire("/dlock/m/n", deleted)
	if !w.grants(alone) {
		t.Error("the end of the only node ahead lets nobody in")
	}
	w = s.newWatch("/dlock/m/n")
	s.connection = &connection{session: s}
	s.fire("/dlock/m/n", deleted)
	if w.grants(alone) {
		t.Error("a writer is let in without a look")
	}
}
