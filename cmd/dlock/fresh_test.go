//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/server"
)

// On servers of a quorum that have just started nobody gets a lock yet: who waits is told,
// once, for what.
func TestRunSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range server.StartAll(t, server.Copies(3, server.Redis{})...) {
		addrs = append(addrs, s.Addr())
	}
	s := newShell(t, urlVariable+"=redlock://"+strings.Join(addrs, ",")+"?dlock.maxttl=8s&dlock.ttl=2s")
	s.start("run", "job", "--", "true").expect(0, `waits for the lock "job", which nobody holds: 0 of 3 nodes take part yet`)

	holder := s.start("run", "-t", "2s", "job", "--", "sh", "-c", "echo > held; exec sleep 4")
	s.await("held")
	s.start("run", "job", "--", "true").expect(0, "") // it is held: that is what waiting is for
	holder.expect(0, "")
}
