package zk

import (
	"strings"
	"testing"
)

// A waiter that leaves deletes its node and makes its mark in one transaction. Who
// begins to watch the node between the two events takes the mark for nothing.
func TestMarkBetweenTwoEvents(t *testing.T) {
	s := newSession(&Backend{})
	s.link = &link{}
	name := strings.Repeat("a", 32) + "-w-0000000001"
	place, ok := parsePlace(name)
	if !ok {
		t.Fatal("no name of a child")
	}
	path := "/dlock/x/" + name
	before, mark := s.newWatch(path), s.newWatch(markOf(path))
	close(before.armed)
	close(mark.armed)
	s.fire(path, gone)
	between := s.newWatch(path) // still to be armed
	s.fireMark(markOf(path))
	behind := barrier{count: 2, last: place}
	if before.opens(behind) || between.opens(behind) {
		t.Error("the end of a waiter let the next in beside the holder")
	}
}
